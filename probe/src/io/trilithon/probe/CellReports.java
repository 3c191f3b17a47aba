// What an executor tells the driver of its credit cells: those that changed.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * A cell that stands still is repeated a few times, since its senders extrapolate from the last
 * counts and must learn that the rate fell, and then now and then, so that the driver keeps it.
 */
final class CellReports {
  static final int REPEATS = 6;
  static final long KEEP_ALIVE_US = CreditBoard.EXPIRY_US / 4;

  private record Told(ObjectNode sent, ObjectNode taken, int repeats, long atUs) {}

  private final Registry registry;
  private final Map<String, Told> told = new HashMap<>();
  private Map<String, Told> underway = Map.of();

  CellReports(Registry registry) {
    this.registry = registry;
  }

  /** The cells for the next message; they count as told when it was delivered. */
  ArrayNode changed() {
    ArrayNode list = Json.array();
    underway = new HashMap<>();
    long nowUs = registry.clock.nowUs();
    told.keySet().retainAll(registry.cells.keySet());
    registry.cells.forEach((name, cell) -> {
      ObjectNode sent = sparse(cell.sent);
      ObjectNode taken = Json.object();
      cell.takenBySender.forEach((sender, counts) ->
          taken.set(Integer.toString(sender), sparse(counts)));
      Told before = told.get(name);
      boolean same = before != null && before.sent.equals(sent) && before.taken.equals(taken);
      if (same && before.repeats >= REPEATS && nowUs - before.atUs < KEEP_ALIVE_US) {
        return;
      }
      ObjectNode json = list.addObject().put("cell", name).put("at_us", nowUs);
      json.set("sent", sent);
      json.set("taken", taken);
      underway.put(name, new Told(sent, taken, same ? before.repeats + 1 : 0, nowUs));
    });
    return list;
  }

  void delivered() {
    told.putAll(underway);
  }

  private static ObjectNode sparse(AtomicLongArray counts) {
    ObjectNode json = Json.object();
    for (int i = 0; i < counts.length(); i++) {
      if (counts.get(i) != 0) {
        json.put(Integer.toString(i), counts.get(i));
      }
    }
    return json;
  }
}
