// Owns turning a wish for machines into weights: which tasks are used so that the work is done there.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;

final class Placement {
  private Placement() {}

  /**
   * The wish is {"executors": {"id": instances}}. The lowest indices on each executor are used; what an executor cannot
   * give is listed as unmet; if nothing at all can be met, task 0 is used, since records must go somewhere.
   */
  static ObjectNode resolve(ObjectNode table, String batch, Map<Integer, String> executorOfTask) {
    Map<String, Integer> open = new HashMap<>();
    table.path("executors").properties().forEach(e -> open.put(e.getKey(), e.getValue().asInt()));
    ObjectNode resolved = table.deepCopy().put("batch", batch).put("placed", true);
    ArrayNode weights = resolved.putArray("weights");
    boolean any = false;
    for (Map.Entry<Integer, String> task : new TreeMap<>(executorOfTask).entrySet()) {
      boolean use = open.getOrDefault(task.getValue(), 0) > 0;
      if (use) {
        open.merge(task.getValue(), -1, Integer::sum);
      }
      any |= use;
      weights.add(use ? 1 : 0);
    }
    if (!any) {
      weights.set(0, 1);
    }
    ObjectNode unmet = resolved.putObject("unmet");
    open.forEach((executor, missing) -> {
      if (missing > 0) {
        unmet.put(executor, missing);
      }
    });
    return resolved;
  }

  static boolean isWish(JsonNode table) {
    return table.has("executors");
  }
}
