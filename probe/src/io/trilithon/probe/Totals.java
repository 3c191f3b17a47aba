// Sums the cumulative counters of each instance over all executors, exactly across batch
// boundaries.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * Executors only count up, and the last report of each is kept: merging is idempotent and order
 * does not matter.
 */
final class Totals {
  private static final List<String> IDENTITY = List.of(
      "job", "operator", "index", "incarnation", "active", "executor", "least_us",
      "max_us", "stalled_us", "origin_us", "ahead_max_ms");

  private final Map<String, SentReport> last = new TreeMap<>();
  private final Set<String> lost = new HashSet<>();
  /** What lost executors had counted, by instance: as much however many are lost. */
  private final Map<String, ObjectNode> gone = new TreeMap<>();

  synchronized void report(SentReport report) {
    if (!lost.contains(report.executor)) {
      last.put(report.executor, report);
    }
  }

  /**
   * The counters of a lost executor stay in the sum; "losses" says that counts after its last
   * report are missing.
   */
  synchronized void lost(String executor) {
    lost.add(executor);
    SentReport report = last.remove(executor);
    if (report != null) {
      report.json().path("instances").forEach(instance -> {
        ObjectNode sum = gone.computeIfAbsent(id(instance), id -> identity(instance));
        add(sum, (ObjectNode) instance);
        sum.put("losses", sum.path("losses").asInt() + 1);
      });
    }
  }

  synchronized void forget(String job, int incarnationsBelow) {
    gone.values().removeIf(instance -> isOlder(instance, job, incarnationsBelow));
    for (SentReport report : last.values()) {
      ArrayNode instances = (ArrayNode) report.json().path("instances");
      for (int i = instances.size() - 1; i >= 0; i--) {
        if (isOlder(instances.get(i), job, incarnationsBelow)) {
          instances.remove(i);
        }
      }
    }
  }

  private static boolean isOlder(JsonNode instance, String job, int incarnationsBelow) {
    return instance.path("job").asText().equals(job)
        && instance.path("incarnation").asInt() < incarnationsBelow;
  }

  synchronized ArrayNode toJson() {
    Map<String, ObjectNode> sums = new TreeMap<>();
    gone.forEach((id, instance) -> sums.put(id, instance.deepCopy()));
    last.forEach((executor, report) -> report.json().path("instances").forEach(instance -> {
      ObjectNode sum = sums.computeIfAbsent(id(instance), id -> identity(instance));
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
        .put("active", false).put("losses", 0);
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
