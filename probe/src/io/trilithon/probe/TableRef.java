// The current routing table of one operator: senders read it, the exchange replaces it.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;

final class TableRef {
  private volatile RoutingTable table;
  private JsonNode source;

  /** The table, or null before the first. */
  RoutingTable get() {
    return table;
  }

  /**
   * An equal table is not set again: senders would restart their cycle and favour its first task.
   */
  void set(JsonNode newer) {
    if (!newer.equals(source)) {
      table = RoutingTable.parse(newer);
      source = newer;
    }
  }
}
