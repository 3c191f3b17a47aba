// The driver's view of credits: the records that each executor sent and took, and the answer to
// each executor.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

/** Not thread-safe: the driver's plugin endpoint takes one message at a time. */
final class CreditBoard {
  /** A cell without messages for this long belongs to a batch that is over. */
  private static final long EXPIRY_US = 10_000_000;

  private final Map<String, Map<Integer, Side>> cells = new HashMap<>();

  /** One executor's latest counts for one cell. */
  private record Side(JsonNode sent, JsonNode taken, long atUs) {}

  void update(int executor, JsonNode cellList, long nowUs) {
    for (JsonNode cell : cellList) {
      cells.computeIfAbsent(cell.path("cell").asText(), c -> new HashMap<>())
          .put(executor, new Side(cell.path("sent"), cell.path("taken"),
              cell.path("at_us").asLong()));
    }
    for (Iterator<Map<Integer, Side>> it = cells.values().iterator(); it.hasNext();) {
      Map<Integer, Side> sides = it.next();
      sides.values().removeIf(side -> side.atUs < nowUs - EXPIRY_US);
      if (sides.isEmpty()) {
        it.remove();
      }
    }
  }

  /**
   * For each cell this executor sends to: how many of its records others took, when, and how many
   * executors send.
   */
  ArrayNode answer(int executor) {
    ArrayNode answer = Json.array();
    cells.forEach((name, sides) -> {
      Side own = sides.get(executor);
      if (own == null || own.sent.isEmpty()) {
        return;
      }
      ObjectNode cell = answer.addObject().put("cell", name)
          .put("senders", sides.values().stream().filter(side -> !side.sent.isEmpty()).count());
      ObjectNode taken = cell.putObject("taken");
      sides.forEach((other, side) -> {
        if (other != executor) {
          side.taken.path(Integer.toString(executor)).properties().forEach(e ->
              taken.putArray(e.getKey()).add(e.getValue().asLong()).add(side.atUs));
        }
      });
    });
    return answer;
  }
}
