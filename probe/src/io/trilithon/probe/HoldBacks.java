// The edges to other parts of a job whose senders must go slowly, because what they sent is not read
// yet.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;

/**
 * An edge has a least time between two records of one sender. Who holds it back says for how long
 * and repeats that: a host that died cannot stop a job for ever. Times are the driver's.
 */
final class HoldBacks {
  /** The pause of an edge that no record may pass. */
  static final long CLOSED = Long.MAX_VALUE;

  private record Hold(long untilUs, long pauseUs) {}

  private volatile Map<String, Hold> holds = Map.of();

  /** The least time between two records of one sender; 0 for an edge that is not held back. */
  long pauseUs(String edge, long nowUs) {
    Map<String, Hold> all = holds;
    if (all.isEmpty()) {
      return 0;
    }
    Hold hold = all.get(edge);
    return hold == null || nowUs >= hold.untilUs ? 0 : hold.pauseUs;
  }

  /** Holds an edge back until a time; a pause of 0 lets it go. */
  synchronized void set(String edge, long untilUs, long pauseUs, long nowUs) {
    Map<String, Hold> next = new HashMap<>(holds);
    next.values().removeIf(hold -> hold.untilUs <= nowUs);
    if (pauseUs > 0 && untilUs > nowUs) {
      next.put(edge, new Hold(untilUs, pauseUs));
    } else {
      next.remove(edge);
    }
    holds = Map.copyOf(next);
  }

  /** What the driver says replaces what was known. */
  void learn(JsonNode said) {
    if (said.isEmpty() && holds.isEmpty()) {
      return;
    }
    Map<String, Hold> next = new HashMap<>();
    said.properties().forEach(e -> next.put(e.getKey(),
        new Hold(e.getValue().get(0).asLong(), e.getValue().get(1).asLong())));
    holds = Map.copyOf(next);
  }

  ObjectNode toJson(long nowUs) {
    ObjectNode json = Json.object();
    holds.forEach((edge, hold) -> {
      if (hold.untilUs > nowUs) {
        json.putArray(edge).add(hold.untilUs).add(hold.pauseUs);
      }
    });
    return json;
  }
}
