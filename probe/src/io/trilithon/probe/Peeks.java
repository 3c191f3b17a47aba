// The edges between two operators of one query at which somebody looks, and records that pass there.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * In an executor: while an edge is watched a few of its records are kept for the next exchange, and
 * the rest are not even written as text. An edge that nobody watches costs the reading of one field.
 */
final class Peeks {
  /** The most records of an edge between two exchanges. */
  static final int MOST = 10;
  /** Longer records are cut off. */
  static final int MAX_CHARS = 10_000;

  private volatile Map<UTF8String, ArrayBlockingQueue<ObjectNode>> watched = Map.of();

  boolean wants(UTF8String edge) {
    Map<UTF8String, ArrayBlockingQueue<ObjectNode>> all = watched;
    if (all.isEmpty()) {
      return false;
    }
    ArrayBlockingQueue<ObjectNode> seen = all.get(edge);
    return seen != null && seen.remainingCapacity() > 0;
  }

  void show(UTF8String edge, UTF8String record, int instance, long wallUs) {
    ArrayBlockingQueue<ObjectNode> seen = watched.get(edge);
    if (seen != null) {
      String text = record.toString();
      seen.offer(Json.object().put("instance", instance).put("time_s", wallUs / 1e6)
          .put("value", text.length() > MAX_CHARS ? text.substring(0, MAX_CHARS) + "…" : text));
    }
  }

  /** What the driver says replaces what was known. */
  void learn(JsonNode edges) {
    if (edges.isEmpty() && watched.isEmpty()) {
      return;
    }
    Map<UTF8String, ArrayBlockingQueue<ObjectNode>> next = new HashMap<>();
    for (JsonNode edge : edges) {
      UTF8String name = UTF8String.fromString(edge.asText());
      ArrayBlockingQueue<ObjectNode> seen = watched.get(name);
      next.put(name, seen == null ? new ArrayBlockingQueue<>(MOST) : seen);
    }
    watched = Map.copyOf(next);
  }

  /** {"edge": [records]} since the last call. */
  ObjectNode drain() {
    ObjectNode json = Json.object();
    watched.forEach((edge, seen) -> {
      if (!seen.isEmpty()) {
        List<ObjectNode> records = new ArrayList<>();
        seen.drainTo(records);
        json.putArray(edge.toString()).addAll(records);
      }
    });
    return json;
  }
}
