// One routing table of an operator: which of its tasks get records, with what weights, and the task
// of each key group.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;

/**
 * Immutable. {@code batch} is the batch for which a placement was resolved; empty without a
 * placement.
 */
final class RoutingTable {
  static final int KEY_GROUPS = 1024;
  /** In place of a task: the records of the group are dealt over all used tasks. */
  static final int SPREAD = -1;
  static final int MAX_TASKS = 256;
  static final int DEFAULT_CREDIT = 20;

  final long generation;
  final String batch;
  final boolean placed;
  final boolean ordered;
  final int credit;
  final int[] targets;
  final double[] weights;
  private final int[] groups;

  private RoutingTable(long generation, String batch, boolean placed, boolean ordered, int credit,
      int[] targets, double[] weights, int[] groups) {
    this.generation = generation;
    this.batch = batch;
    this.placed = placed;
    this.ordered = ordered;
    this.credit = credit;
    this.targets = targets;
    this.weights = weights;
    this.groups = groups;
  }

  /** The table until one is set: the first {@code parallelism} tasks with equal weights. */
  static RoutingTable even(int parallelism, int credit) {
    double[] weights = new double[Math.max(1, Math.min(parallelism, MAX_TASKS))];
    Arrays.fill(weights, 1);
    return of(0, "", false, false, credit, weights, null);
  }

  /**
   * Reads {"generation", "weights": [per task], "credit"?, "groups"?: [1024 tasks or -1],
   * "placed"?, "batch"?, "ordered"?}.
   */
  static RoutingTable parse(JsonNode json) {
    JsonNode list = json.path("weights");
    if (!list.isArray() || list.isEmpty() || list.size() > MAX_TASKS) {
      throw new IllegalArgumentException(
          "a table needs 'weights', one for each of 1 to " + MAX_TASKS + " tasks");
    }
    double[] weights = new double[list.size()];
    for (int i = 0; i < weights.length; i++) {
      weights[i] = list.get(i).asDouble(Double.NaN);
      if (!(weights[i] >= 0) || Double.isInfinite(weights[i])) {
        throw new IllegalArgumentException(
            "weight " + i + " is " + list.get(i) + ": it must be a number of 0 or more");
      }
    }
    return of(json.path("generation").asLong(), json.path("batch").asText(""),
        json.path("placed").asBoolean(), json.path("ordered").asBoolean(),
        json.path("credit").asInt(DEFAULT_CREDIT), weights,
        groups(json.path("groups"), json.path("placed").asBoolean() ? MAX_TASKS : weights.length));
  }

  private static int[] groups(JsonNode list, int tasks) {
    if (!list.isArray()) {
      return null;
    }
    if (list.size() != KEY_GROUPS) {
      throw new IllegalArgumentException(
          "'groups' has " + list.size() + " entries instead of " + KEY_GROUPS);
    }
    int[] groups = new int[KEY_GROUPS];
    for (int i = 0; i < KEY_GROUPS; i++) {
      groups[i] = list.get(i).asInt(tasks);
      if (groups[i] < SPREAD || groups[i] >= tasks) {
        throw new IllegalArgumentException(
            "group " + i + " is on task " + list.get(i) + " of " + tasks);
      }
    }
    return groups;
  }

  private static RoutingTable of(long generation, String batch, boolean placed, boolean ordered,
      int credit, double[] byTask, int[] groups) {
    int used = (int) Arrays.stream(byTask).filter(w -> w > 0).count();
    if (used == 0) {
      throw new IllegalArgumentException("all weights are 0: at least one task must get records");
    }
    int[] targets = new int[used];
    double[] weights = new double[used];
    int next = 0;
    for (int task = 0; task < byTask.length; task++) {
      if (byTask[task] > 0) {
        targets[next] = task;
        weights[next++] = byTask[task];
      }
    }
    for (int group = 0; placed && groups != null && group < groups.length; group++) {
      if (groups[group] != SPREAD) {
        groups[group] = targets[groups[group] % used]; // with a placement, groups name instances
      }
    }
    return new RoutingTable(generation, batch, placed, ordered, credit, targets, weights, groups);
  }

  /**
   * The task of a key: that of its group, or {@link #SPREAD}; without groups one of the used tasks
   * by hash.
   */
  int taskOfHash(long hash) {
    int group = (int) Math.floorMod(hash, (long) KEY_GROUPS);
    return groups != null ? groups[group] : targets[group % targets.length];
  }

  /** Whether the task gets records. */
  boolean uses(int task) {
    return Arrays.binarySearch(targets, task) >= 0; // in the order of the tasks
  }

  /** The same table with another credit, for setCredit. */
  static ObjectNode withCredit(ObjectNode table, int credit) {
    if (credit < 1) {
      throw new IllegalArgumentException(
          "credit " + credit + ": at least 1 record must be allowed in flight");
    }
    return table.deepCopy().put("credit", credit);
  }
}
