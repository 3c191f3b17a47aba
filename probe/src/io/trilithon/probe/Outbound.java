// Counters of one sending instance on one outgoing edge: emitted, parked and sent, in all and for each
// receiver.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;

final class Outbound {
  final String to;
  long emitted;
  long parkedNs;
  long forced;
  final long[] sentTo = new long[RoutingTable.MAX_TASKS];
  final long[] parkedAtNs = new long[RoutingTable.MAX_TASKS];

  Outbound(String to) {
    this.to = to;
  }

  ObjectNode toJson() {
    ObjectNode json = Json.object().put("emitted", emitted).put("parked_ns", parkedNs)
        .put("forced", forced);
    json.set("sent_to", byTask(sentTo));
    json.set("parked_at", byTask(parkedAtNs));
    return json;
  }

  private static ObjectNode byTask(long[] counts) {
    ObjectNode json = Json.object();
    for (int i = 0; i < counts.length; i++) {
      if (counts[i] != 0) {
        json.put(Integer.toString(i), counts[i]);
      }
    }
    return json;
  }
}
