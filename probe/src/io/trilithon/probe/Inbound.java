// Owns what one instance saw on one incoming edge: channel latency and inter-arrival times.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;

final class Inbound {
  final String from;
  final Moments channel = new Moments();
  final Arrivals arrivals = new Arrivals();

  Inbound(String from) {
    this.from = from;
  }

  ObjectNode toJson() {
    ObjectNode json = Json.object();
    json.set("channel", channel.toJson());
    json.set("interarrival", arrivals.gaps.toJson());
    return json;
  }
}
