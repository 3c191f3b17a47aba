// In the driver: the edges that are watched, until when, and the latest records seen there.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;

/** What is not watched any more is forgotten: records are the tenant's, and not kept for nobody. */
final class PeekBoard {
  /** The most records that are kept of an edge. */
  static final int KEPT = 50;

  private record Watch(long untilUs, ArrayDeque<JsonNode> records) {}

  private final Map<String, Watch> watches = new HashMap<>();

  void watch(String edge, long untilUs) {
    Watch known = watches.get(edge);
    watches.put(edge, new Watch(untilUs, known == null ? new ArrayDeque<>() : known.records));
  }

  /** The edges that are watched at this time. */
  ArrayNode watched(long nowUs) {
    watches.values().removeIf(watch -> watch.untilUs <= nowUs);
    ArrayNode edges = Json.array();
    watches.keySet().forEach(edges::add);
    return edges;
  }

  /** Takes {"edge": [records]} of an executor. */
  void seen(JsonNode seen) {
    seen.properties().forEach(e -> {
      Watch watch = watches.get(e.getKey());
      if (watch != null) {
        e.getValue().forEach(watch.records::addLast);
        while (watch.records.size() > KEPT) {
          watch.records.removeFirst();
        }
      }
    });
  }

  ArrayNode records(String edge) {
    ArrayNode records = Json.array();
    Watch watch = watches.get(edge);
    if (watch != null) {
      watch.records.forEach(records::add);
    }
    return records;
  }
}
