// Sums the cumulative counters of each instance over all executors, exactly across batch
// boundaries.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
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

  private final ReceivedReports received;
  /** The incarnation of each job from which on counters count. */
  private final Map<String, Integer> incarnations;
  /** What lost executors had counted, by instance: as much however many are lost. */
  private final Map<String, ObjectNode> gone = new TreeMap<>();

  Totals(ReceivedReports received, Map<String, Integer> incarnations) {
    this.received = received;
    this.incarnations = incarnations;
  }

  /**
   * The counters of a lost executor stay in the sum; "losses" says that counts after its last
   * report are missing.
   */
  void lost(String executor) {
    received.forEachInstance(executor, (e, instance) -> {
      if (counts(instance)) {
        ObjectNode sum = gone.computeIfAbsent(ReportRows.id(instance), id -> identity(instance));
        add(sum, (ObjectNode) instance);
        sum.put("losses", sum.path("losses").asInt() + 1);
      }
    });
  }

  /** Forgets what was counted in earlier incarnations. */
  void forgetEarlier() {
    gone.values().removeIf(instance -> !counts(instance));
  }

  int gone() {
    return gone.size();
  }

  private boolean counts(JsonNode instance) {
    Integer incarnation = incarnations.get(instance.path("job").asText());
    return incarnation == null || instance.path("incarnation").asInt() >= incarnation;
  }

  ArrayNode toJson() {
    Map<String, ObjectNode> sums = new TreeMap<>();
    gone.forEach((id, instance) -> sums.put(id, instance.deepCopy()));
    received.forEachInstance((executor, instance) -> {
      if (!counts(instance)) {
        return;
      }
      ObjectNode sum = sums.computeIfAbsent(ReportRows.id(instance), id -> identity(instance));
      if (instance.path("active").asBoolean()) {
        sum.put("active", true).put("executor", executor);
      }
      add(sum, (ObjectNode) instance);
    });
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
