// Measures of one instance on one incoming edge: channel latency and inter-arrival times.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * Channel time is transport, batching (the shuffle sends records in batches) and waiting for the
 * instance. A record that was sent while the instance was idle did not wait: the mean over the
 * latest of those is transport plus batching, their minimum is transport. Under overload there are
 * none, and the last known mean holds.
 */
final class Inbound {
  private static final double KEPT = 63.0 / 64;

  final String from;
  final Moments channel = new Moments();
  final Arrivals arrivals = new Arrivals();
  private double unwaitedUs = Double.NaN;
  private double leastUs = Double.NaN;
  private double gatheredUs;

  Inbound(String from) {
    this.from = from;
  }

  /**
   * A record was in the channel for this long; {@code idle} if the instance was idle when it was
   * sent.
   */
  void took(long channelUs, boolean idle) {
    channel.add(channelUs);
    if (idle) {
      unwaitedUs = Double.isNaN(unwaitedUs)
          ? channelUs : KEPT * unwaitedUs + (1 - KEPT) * channelUs;
      leastUs = Double.isNaN(leastUs) ? channelUs : Math.min(leastUs, channelUs);
    }
    if (!Double.isNaN(unwaitedUs)) {
      gatheredUs += Math.min(channelUs, unwaitedUs) - Math.min(channelUs, leastUs);
    }
  }

  ObjectNode toJson() {
    ObjectNode json = Json.object();
    json.set("channel", channel.toJson());
    json.set("interarrival", arrivals.gaps.toJson());
    if (!Double.isNaN(unwaitedUs)) {
      json.put("least_us", leastUs).put("gathered_us", gatheredUs);
    }
    return json;
  }
}
