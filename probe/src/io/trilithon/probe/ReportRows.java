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
 * place of the row in the whole report. Rows only vanish with an incarnation of a job; then the
 * next report is whole.
 */
final class ReportRows {
  /** What changed since a whole report grows with its age. */
  static final int WHOLE_EVERY = 30;
  private static final int KEPT = 4;
  private static final String CPU = "cpu_ns";

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
        changed.add(row);
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
        rows.set(place, row);
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
