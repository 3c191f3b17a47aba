// Owns the place where senders read the routing table of one operator and the exchange puts a newer one.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;

final class TableRef {
  private volatile RoutingTable table;
  private JsonNode source;

  /** The table, or null as long as nobody set one. */
  RoutingTable get() {
    return table;
  }

  /** An equal table is not set again: senders would start their round anew, and favour its first task. */
  void set(JsonNode newer) {
    if (!newer.equals(source)) {
      table = RoutingTable.parse(newer);
      source = newer;
    }
  }
}
