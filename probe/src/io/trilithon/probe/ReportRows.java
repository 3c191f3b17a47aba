// The rows of an executor's report: all of them, or those that differ from a whole report that the
// driver has.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;

/**
 * A difference names the whole report that it is based on, and that is always one of which the
 * driver has said that it has it. So it does not matter which differences before it got lost. The
 * CPU time of a thread grows even while it waits: where nothing else changed, it travels with the
 * place of the row in the whole report. The buckets of a histogram fill for as long as a job runs: a
 * row that changed has only those that did. Rows only vanish with an incarnation of a job; then the
 * next report is whole.
 */
final class ReportRows {
  /** What changed since a whole report grows with its age. */
  static final int WHOLE_EVERY = 30;
  private static final int KEPT = 4;
  private static final String CPU = "cpu_ns";
  private static final String HISTOGRAM = "e2e";
  private static final String BUCKETS = "buckets";
  /** The buckets that differ from those of the whole report. */
  private static final String MORE = "more";

  private record Rows(Map<?, ObjectNode> instances, Map<?, ObjectNode> readers) {}

  /** The latest whole reports, by sequence: the driver may have any of them. */
  private final TreeMap<Long, Rows> whole = new TreeMap<>();

  /**
   * Adds the rows to a report, by key; {@code known} is the latest whole report that the driver
   * has. Returns the report on which this one is based, or 0 if it is whole.
   */
  long write(ObjectNode report, long sequence, long known, Map<?, ObjectNode> instances,
      Map<?, ObjectNode> readers) {
    whole.headMap(known).clear();
    Rows base = whole.get(known);
    if (base == null || sequence - known >= WHOLE_EVERY
        || !instances.keySet().containsAll(base.instances.keySet())
        || !readers.keySet().containsAll(base.readers.keySet())) {
      whole.put(sequence, new Rows(instances, readers));
      if (whole.size() > KEPT) {
        whole.pollFirstEntry();
      }
      report.putArray("instances").addAll(instances.values());
      report.putArray("readers").addAll(readers.values());
      return 0;
    }
    report.put("base", known);
    changedInstances(report, base.instances, instances);
    ArrayNode changed = report.putArray("readers");
    readers.forEach((key, row) -> {
      if (!row.equals(base.readers.get(key))) {
        changed.add(row);
      }
    });
    return known;
  }

  private static void changedInstances(ObjectNode report, Map<?, ObjectNode> base,
      Map<?, ObjectNode> rows) {
    ArrayNode changed = report.putArray("instances");
    ArrayNode cpu = report.putArray(CPU);
    int place = 0;
    for (Map.Entry<?, ObjectNode> entry : base.entrySet()) {
      ObjectNode row = rows.get(entry.getKey());
      JsonNode cpuNs = row.path(CPU);
      if (!sameButCpu(entry.getValue(), row)) {
        changed.add(withoutKnownBuckets(entry.getValue(), row));
      } else if (!cpuNs.equals(entry.getValue().path(CPU))) {
        cpu.addArray().add(place).add(cpuNs);
      }
      place++;
    }
    rows.forEach((key, row) -> {
      if (!base.containsKey(key)) {
        changed.add(row);
      }
    });
  }

  private static boolean sameButCpu(ObjectNode before, ObjectNode now) {
    return before.size() == now.size() && now.properties().stream()
        .allMatch(e -> e.getKey().equals(CPU) || e.getValue().equals(before.get(e.getKey())));
  }

  private static ObjectNode withoutKnownBuckets(ObjectNode base, ObjectNode row) {
    JsonNode before = base.path(HISTOGRAM).path(BUCKETS);
    JsonNode now = row.path(HISTOGRAM).path(BUCKETS);
    ObjectNode more = Json.object();
    int kept = 0;
    for (Map.Entry<String, JsonNode> bucket : now.properties()) {
      JsonNode count = before.get(bucket.getKey());
      kept += count == null ? 0 : 1;
      if (!bucket.getValue().equals(count)) {
        more.set(bucket.getKey(), bucket.getValue());
      }
    }
    return before.isEmpty() || kept < before.size() ? row : withHistogram(row, BUCKETS, MORE, more);
  }

  private static ObjectNode withBucketsOf(JsonNode base, ObjectNode row) {
    JsonNode more = row.path(HISTOGRAM).path(MORE);
    if (more.isMissingNode()) {
      return row;
    }
    ObjectNode buckets = Json.object();
    buckets.setAll((ObjectNode) base.path(HISTOGRAM).path(BUCKETS));
    buckets.setAll((ObjectNode) more);
    return withHistogram(row, MORE, BUCKETS, buckets);
  }

  /** A copy of the row; a field of its histogram is replaced by another one. */
  private static ObjectNode withHistogram(ObjectNode row, String out, String in, ObjectNode value) {
    ObjectNode histogram = Json.object();
    histogram.setAll((ObjectNode) row.get(HISTOGRAM));
    histogram.remove(out);
    histogram.set(in, value);
    ObjectNode copy = Json.object();
    copy.setAll(row);
    copy.set(HISTOGRAM, histogram);
    return copy;
  }

  /** The instances of a whole report with what a difference says of them. */
  static ArrayNode instances(JsonNode base, JsonNode difference) {
    ArrayNode rows = Json.array();
    Map<String, Integer> places = new HashMap<>();
    for (JsonNode row : base.path("instances")) {
      places.put(id(row), rows.size());
      rows.add(row);
    }
    for (JsonNode cpu : difference.path(CPU)) {
      int place = cpu.get(0).asInt();
      ObjectNode row = rows.get(place).deepCopy();
      row.set(CPU, cpu.get(1));
      rows.set(place, row);
    }
    for (JsonNode row : difference.path("instances")) {
      Integer place = places.get(id(row));
      if (place == null) {
        rows.add(row);
      } else {
        rows.set(place, withBucketsOf(base.path("instances").get(place), (ObjectNode) row));
      }
    }
    return rows;
  }

  /** The name of an instance in an incarnation of its job. */
  static String id(JsonNode instance) {
    return instance.path("job").asText() + "/" + instance.path("operator").asText() + "/"
        + instance.path("index").asInt() + "/" + instance.path("incarnation").asInt();
  }
}
