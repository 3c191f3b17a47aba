// Resolves a desired placement into weights: which tasks get records so that the work is done on
// those executors.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

final class Placement {
  private Placement() {}

  /**
   * A placement is {"executors": {"id": instances}, "anywhere": instances, "avoid"?: [tasks]}. The
   * lowest task indices on each executor are used. Instances that an executor has no tasks for are
   * listed as unmet and, like those that may run anywhere, go to the lowest remaining tasks.
   * Avoided tasks are used only if there are no others left.
   */
  static ObjectNode resolve(ObjectNode table, String batch, Map<Integer, String> executorOfTask) {
    Map<String, Integer> open = new HashMap<>();
    table.path("executors").properties().forEach(e -> open.put(e.getKey(), e.getValue().asInt()));
    ObjectNode resolved = table.deepCopy().put("batch", batch).put("placed", true);
    Set<Integer> used = new HashSet<>();
    Set<Integer> avoided = new HashSet<>();
    table.path("avoid").forEach(task -> avoided.add(task.asInt()));
    Map<Integer, String> tasks = new TreeMap<>(executorOfTask);
    tasks.forEach((task, executor) -> {
      if (!avoided.contains(task) && open.getOrDefault(executor, 0) > 0) {
        open.merge(executor, -1, Integer::sum);
        used.add(task);
      }
    });
    int left = table.path("anywhere").asInt()
        + open.values().stream().mapToInt(Integer::intValue).sum();
    for (boolean last : new boolean[] {false, true}) {
      for (int task : tasks.keySet()) {
        if (left > 0 && avoided.contains(task) == last && used.add(task)) {
          left--;
        }
      }
    }
    ArrayNode weights = resolved.putArray("weights");
    tasks.keySet().forEach(task -> weights.add(used.contains(task) ? 1 : 0));
    ObjectNode unmet = resolved.putObject("unmet");
    open.forEach((executor, missing) -> {
      if (missing > 0) {
        unmet.put(executor, missing);
      }
    });
    return resolved;
  }

  static boolean isPlacement(JsonNode table) {
    return table.has("executors");
  }
}
