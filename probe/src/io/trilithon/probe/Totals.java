// Sums the cumulative counters of each instance over all executors, exactly across batch
// boundaries.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Executors only count up, and the last report of each is kept: merging is idempotent and order
 * does not matter.
 */
final class Totals {
  private static final List<String> IDENTITY = List.of(
      "job", "operator", "index", "incarnation", "active", "executor", "least_us",
      "max_us", "stalled_us", "origin_us", "ahead_max_ms");

  private final Map<String, JsonNode> last = new TreeMap<>();
  private final Map<String, Integer> losses = new HashMap<>();

  synchronized void report(String executor, JsonNode report) {
    last.put(executor, report);
  }

  /**
   * The counters of a lost executor stay in the sum; "losses" says that counts after its last
   * report are missing.
   */
  synchronized void lost(String executor) {
    JsonNode report = last.get(executor);
    if (report == null) {
      return;
    }
    for (JsonNode instance : report.path("instances")) {
      ((ObjectNode) instance).put("active", false);
      losses.merge(id(instance), 1, Integer::sum);
    }
  }

  synchronized void forget(String job, int incarnationsBelow) {
    for (JsonNode report : last.values()) {
      ArrayNode instances = (ArrayNode) report.path("instances");
      for (int i = instances.size() - 1; i >= 0; i--) {
        JsonNode instance = instances.get(i);
        if (instance.path("job").asText().equals(job)
            && instance.path("incarnation").asInt() < incarnationsBelow) {
          losses.remove(id(instance));
          instances.remove(i);
        }
      }
    }
  }

  synchronized ArrayNode toJson() {
    Map<String, ObjectNode> sums = new TreeMap<>();
    last.forEach((executor, report) -> report.path("instances").forEach(instance -> {
      ObjectNode sum = sums.computeIfAbsent(id(instance), id -> identity(instance).put("losses",
          losses.getOrDefault(id, 0)));
      if (instance.path("active").asBoolean()) {
        sum.put("active", true).put("executor", executor);
      }
      add(sum, (ObjectNode) instance);
    }));
    ArrayNode list = Json.array();
    sums.values().forEach(list::add);
    return list;
  }

  private static ObjectNode identity(JsonNode instance) {
    return Json.object().put("job", instance.path("job").asText())
        .put("operator", instance.path("operator").asText())
        .put("index", instance.path("index").asInt())
        .put("incarnation", instance.path("incarnation").asInt())
        .put("active", false);
  }

  private static String id(JsonNode instance) {
    return instance.path("job").asText() + "/" + instance.path("operator").asText() + "/"
        + instance.path("index").asInt() + "/" + instance.path("incarnation").asInt();
  }

  /** Adds numbers leaf by leaf. */
  private static void add(ObjectNode sum, ObjectNode more) {
    more.properties().forEach(e -> {
      JsonNode value = e.getValue();
      if (IDENTITY.contains(e.getKey())) {
        return;
      }
      if (value.isObject()) {
        JsonNode inner = sum.get(e.getKey());
        add(inner == null ? sum.putObject(e.getKey()) : (ObjectNode) inner, (ObjectNode) value);
      } else if (value.isIntegralNumber()) {
        sum.put(e.getKey(), sum.path(e.getKey()).asLong() + value.asLong());
      } else if (value.isNumber()) {
        sum.put(e.getKey(), sum.path(e.getKey()).asDouble() + value.asDouble());
      }
    });
  }
}
