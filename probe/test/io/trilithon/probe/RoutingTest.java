// Tests of routing tables, round robin and placement.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.TreeMap;

class RoutingTest {
  private static RoutingTable table(String json) {
    return RoutingTable.parse(Json.parse(json));
  }

  void weightsAreHeldExactlyAndSmoothly() {
    SmoothRoundRobin order =
        new SmoothRoundRobin(table("{\"generation\":1,\"weights\":[5,1,0,1]}"), 0);
    StringBuilder picks = new StringBuilder();
    for (int i = 0; i < 7; i++) {
      picks.append(order.next());
    }
    Check.equal("0010300", picks.toString());
  }

  void sendersStartAtDifferentPlaces() {
    RoutingTable even = RoutingTable.even(4, 20);
    for (int phase = 0; phase < 8; phase++) {
      Check.equal(phase % 4, new SmoothRoundRobin(even, phase).next());
    }
  }

  void aTaskWithoutWeightIsNotUsed() {
    RoutingTable uneven = table("{\"generation\":1,\"weights\":[0,2,0,1]}");
    for (int task = 0; task < 5; task++) {
      Check.equal(task == 1 || task == 3, uneven.uses(task));
    }
  }

  void everyKeyHasOneTask() {
    RoutingTable even = RoutingTable.even(3, 20);
    for (long hash : new long[] {0, 5, -7, Long.MIN_VALUE, Long.MAX_VALUE}) {
      int task = even.taskOfHash(hash);
      Check.that(task >= 0 && task < 3, "task " + task);
      Check.equal(task, even.taskOfHash(hash + 1024 * (hash > 0 ? -1 : 1)));
    }
  }

  void groupsCanBeMovedOneByOne() {
    StringBuilder groups = new StringBuilder("0");
    for (int i = 1; i < 1024; i++) {
      groups.append(i == 5 ? ",1" : ",0");
    }
    RoutingTable t = table("{\"generation\":1,\"weights\":[1,1],\"groups\":[" + groups + "]}");
    Check.equal(1, t.taskOfHash(5));
    Check.equal(1, t.taskOfHash(5 + 1024));
    Check.equal(0, t.taskOfHash(6));
  }

  void aGroupCanBeSpread() {
    String groups = "-1" + ",1".repeat(1023);
    RoutingTable t = table("{\"generation\":1,\"weights\":[1,1],\"groups\":[" + groups + "]}");
    Check.equal(RoutingTable.SPREAD, t.taskOfHash(1024));
    Check.equal(1, t.taskOfHash(1));
    RoutingTable placed = table(
        "{\"generation\":1,\"placed\":true,\"weights\":[0,1],\"groups\":[" + groups + "]}");
    Check.equal(RoutingTable.SPREAD, placed.taskOfHash(0));
    Check.refused("group 0 is on task -2", () -> table(
        "{\"weights\":[1],\"groups\":[-2" + ",0".repeat(1023) + "]}"));
  }

  void groupsOfAWishNameInstancesWhereverTheyAre() {
    StringBuilder groups = new StringBuilder("1");
    groups.append(",0".repeat(1023));
    RoutingTable t = table("{\"generation\":1,\"placed\":true,\"weights\":[0,1,0,1],\"groups\":["
        + groups + "]}");
    Check.equal(3, t.taskOfHash(0));
    Check.equal(1, t.taskOfHash(1));
  }

  void badTablesAreRefused() {
    Check.refused("needs 'weights'", () -> table("{\"generation\":1}"));
    Check.refused("all weights are 0", () -> table("{\"weights\":[0,0]}"));
    Check.refused("weight 1 is -1", () -> table("{\"weights\":[1,-1]}"));
    Check.refused("weight 0 is \"x\"", () -> table("{\"weights\":[\"x\"]}"));
    Check.refused("has 1 entries", () -> table("{\"weights\":[1],\"groups\":[0]}"));
  }

  private static Map<Integer, String> places(String... executors) {
    Map<Integer, String> map = new TreeMap<>();
    for (int i = 0; i < executors.length; i++) {
      map.put(i, executors[i]);
    }
    return map;
  }

  void aPlacementBecomesWeights() {
    ObjectNode desired = (ObjectNode) Json.parse("{\"generation\":1,\"executors\":{\"1\":2}}");
    ObjectNode resolved = Placement.resolve(desired, "run:3", places("0", "1", "0", "1", "1"));
    Check.equal("[0,1,0,1,0]", resolved.get("weights").toString());
    Check.equal("run:3", resolved.get("batch").asText());
    Check.that(resolved.get("unmet").isEmpty(), "all met");
  }

  void instancesWithoutAPlacementGetTheRemainingTasks() {
    ObjectNode desired = (ObjectNode) Json.parse("{\"executors\":{\"1\":1},\"anywhere\":2}");
    ObjectNode resolved = Placement.resolve(desired, "b", places("0", "0", "1", "1"));
    Check.equal("[1,1,1,0]", resolved.get("weights").toString());
  }

  void anAvoidedTaskIsNotUsedByInstancesThatMayRunAnywhere() {
    Map<Integer, String> two = places("1", "2", "1", "2", "1", "2", "1", "2");
    String wish = "{\"executors\":{\"1\":1},\"anywhere\":3";
    ObjectNode before = Placement.resolve((ObjectNode) Json.parse(wish + "}"), "b", two);
    Check.equal("[1,1,1,1,0,0,0,0]", before.get("weights").toString());
    ObjectNode desired = (ObjectNode) Json.parse(wish + ",\"avoid\":[1]}");
    ObjectNode resolved = Placement.resolve(desired, "b", two);
    Check.equal("[1,0,1,1,1,0,0,0]", resolved.get("weights").toString());
    Check.that(resolved.get("unmet").isEmpty(), "all met");
  }

  void anAvoidedTaskIsNotUsedOnItsExecutorEither() {
    String wish = "{\"executors\":{\"1\":2},\"avoid\":[0,4]}";
    ObjectNode desired = (ObjectNode) Json.parse(wish);
    ObjectNode resolved = Placement.resolve(desired, "b", places("1", "2", "1", "2", "1"));
    Check.equal("[0,1,1,0,0]", resolved.get("weights").toString());
    Check.equal("{\"1\":1}", resolved.get("unmet").toString());
  }

  void avoidedTasksAreUsedIfThereAreNoOthers() {
    String wish = "{\"executors\":{\"1\":1},\"anywhere\":2,\"avoid\":[0,1]}";
    ObjectNode desired = (ObjectNode) Json.parse(wish);
    ObjectNode resolved = Placement.resolve(desired, "b", places("1", "1", "1", "2"));
    Check.equal("[1,0,1,1]", resolved.get("weights").toString());
  }

  void whatCannotBeMetIsSaid() {
    String text = "{\"generation\":1,\"executors\":{\"0\":2,\"9\":1}}";
    ObjectNode desired = (ObjectNode) Json.parse(text);
    ObjectNode resolved = Placement.resolve(desired, "b", places("0", "1"));
    // an instance without a task on its executor runs elsewhere
    Check.equal("[1,1]", resolved.get("weights").toString());
    Check.equal("{\"0\":1,\"9\":1}", resolved.get("unmet").toString());
  }

  void recordsGoSomewhereEvenIfNothingCanBeMet() {
    ObjectNode desired = (ObjectNode) Json.parse("{\"generation\":1,\"executors\":{\"9\":1}}");
    ObjectNode resolved = Placement.resolve(desired, "b", places("0", "1"));
    Check.equal("[1,0]", resolved.get("weights").toString());
  }
}
