// Counters of one sending instance on one outgoing edge: emitted, parked, sent to each receiver.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;

final class Outbound {
  final String to;
  long emitted;
  long parkedNs;
  long forced;
  final long[] sentTo = new long[RoutingTable.MAX_TASKS];

  Outbound(String to) {
    this.to = to;
  }

  ObjectNode toJson() {
    ObjectNode counts = Json.object();
    for (int i = 0; i < sentTo.length; i++) {
      if (sentTo[i] != 0) {
        counts.put(Integer.toString(i), sentTo[i]);
      }
    }
    ObjectNode json = Json.object().put("emitted", emitted).put("parked_ns", parkedNs)
        .put("forced", forced);
    json.set("sent_to", counts);
    return json;
  }
}
