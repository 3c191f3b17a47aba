// Owns what one instance saw on one incoming edge: channel latency and inter-arrival times.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * The channel's time is travelling, gathering (the shuffle sends records in company) and waiting for the instance. A
 * record that was sent while the instance had nothing to do did not wait: the mean over the last of those is travelling
 * and gathering, the least of them travelling. Under overload there are none, and the last known mean holds.
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

  /** A record was this long in the channel; {@code idle} if the instance had nothing to do when it was sent. */
  void took(long channelUs, boolean idle) {
    channel.add(channelUs);
    if (idle) {
      unwaitedUs = Double.isNaN(unwaitedUs) ? channelUs : KEPT * unwaitedUs + (1 - KEPT) * channelUs;
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
