// The driver's view of credits: the records that each executor sent and took, and the answer to
// each executor.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/**
 * An executor is told of the cells that changed since its last answer. Not thread-safe: the driver's
 * plugin endpoint takes one message at a time.
 */
final class CreditBoard {
  /** A cell without messages for this long belongs to a batch that is over. */
  static final long EXPIRY_US = 10_000_000;
  private static final long EXPIRE_EVERY_US = 1_000_000;

  private final Map<String, Map<Integer, Side>> cells = new HashMap<>();
  /** Per executor: the cells that it sends to, and those of them with news. */
  private final Map<Integer, Set<String>> sending = new HashMap<>();
  private final Map<Integer, Set<String>> news = new HashMap<>();
  private final Map<Integer, Long> answers = new HashMap<>();
  private long expiredUs;

  /** One executor's latest counts for one cell. */
  private record Side(JsonNode sent, JsonNode taken, long atUs) {}

  void update(int executor, JsonNode cellList, long nowUs) {
    for (JsonNode cell : cellList) {
      String name = cell.path("cell").asText();
      Map<Integer, Side> sides = cells.computeIfAbsent(name, c -> new HashMap<>());
      sides.put(executor,
          new Side(cell.path("sent"), cell.path("taken"), cell.path("at_us").asLong()));
      if (!cell.path("sent").isEmpty()) {
        sending.computeIfAbsent(executor, e -> new HashSet<>()).add(name);
      }
      sides.forEach((other, side) -> {
        if (!side.sent.isEmpty()) {
          news.computeIfAbsent(other, e -> new HashSet<>()).add(name);
        }
      });
    }
    if (nowUs - expiredUs > EXPIRE_EVERY_US) {
      expiredUs = nowUs;
      expire(nowUs);
    }
  }

  private void expire(long nowUs) {
    cells.entrySet().removeIf(cell -> {
      cell.getValue().entrySet().removeIf(side -> {
        boolean over = side.getValue().atUs < nowUs - EXPIRY_US;
        if (over) {
          forget(side.getKey(), cell.getKey());
        }
        return over;
      });
      return cell.getValue().isEmpty();
    });
  }

  private void forget(int executor, String cell) {
    for (Map<Integer, Set<String>> map : java.util.List.of(sending, news)) {
      map.computeIfPresent(executor, (e, names) -> {
        names.remove(cell);
        return names.isEmpty() ? null : names;
      });
    }
  }

  /** The executor is gone: nobody waits for an answer. Its counts expire. */
  void forget(int executor) {
    sending.remove(executor);
    news.remove(executor);
    answers.remove(executor);
  }

  int cells() {
    return cells.size();
  }

  /** The executors of which anything is kept. */
  int senders() {
    Set<Integer> known = new HashSet<>(answers.keySet());
    known.addAll(sending.keySet());
    known.addAll(news.keySet());
    return known.size();
  }

  /** How many answers an executor was given: one that has another number missed some. */
  long answers(int executor) {
    return answers.getOrDefault(executor, 0L);
  }

  /**
   * For each cell this executor sends to, as far as there are news or {@code all} is asked for: how
   * many of its records others took, when, and how many executors send.
   */
  ArrayNode answer(int executor, boolean all) {
    answers.merge(executor, 1L, Long::sum);
    Set<String> changed = news.remove(executor);
    Set<String> names = all ? sending.get(executor) : changed;
    ArrayNode answer = Json.array();
    for (String name : names == null ? Set.<String>of() : names) {
      Map<Integer, Side> sides = cells.get(name);
      ObjectNode cell = answer.addObject().put("cell", name)
          .put("senders", sides.values().stream().filter(side -> !side.sent.isEmpty()).count());
      ObjectNode taken = cell.putObject("taken");
      sides.forEach((other, side) -> {
        if (other != executor) {
          side.taken.path(Integer.toString(executor)).properties().forEach(e ->
              taken.putArray(e.getKey()).add(e.getValue().asLong()).add(side.atUs));
        }
      });
    }
    return answer;
  }
}
