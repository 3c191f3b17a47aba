// Tests of the exchange: two executors and a driver, without Spark.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;

class ExchangeTest {
  private final DriverState driver = new DriverState(new Clock());
  private final Registry one = new Registry();
  private final Registry two = new Registry();
  private final Exchange first = exchange(one, "1");
  private final Exchange second = exchange(two, "2");

  private Exchange exchange(Registry registry, String executor) {
    return new Exchange(registry, executor, message -> driver.exchange(Json.parse(message), false));
  }

  private void push(int generation, String weights) {
    driver.setTable("j", "a",
        (ObjectNode) Json.parse("{\"generation\":" + generation + ",\"weights\":" + weights + "}"));
  }

  void aNewExecutorKnowsTheTableAfterItsFirstExchange() {
    push(3, "[0,1]");
    first.run();
    Check.equal(3L, one.table("j/a").get().generation);
    Check.equal(1, one.table("j/a").get().targets[0]);
  }

  void tablesTravelOnlyWhenTheyChanged() {
    push(1, "[1]");
    first.run();
    RoutingTable before = one.table("j/a").get();
    first.run();
    Check.that(before == one.table("j/a").get(), "same object, so senders keep their order");
    driver.setTable("other", "a", (ObjectNode) Json.parse("{\"generation\":1,\"weights\":[1]}"));
    first.run();
    Check.that(before == one.table("j/a").get(), "nor does another job's table disturb them");
    push(2, "[1,1]");
    first.run();
    Check.equal(2L, one.table("j/a").get().generation);
  }

  void creditsComeBackFromAnotherExecutor() {
    first.run();
    second.run();
    CreditCell sending = one.cell("j/a|r:0");
    for (int i = 0; i < 20; i++) {
      sending.reserve(0, one.ordinal(), 20, 0);
    }
    Check.that(!sending.reserve(0, one.ordinal(), 20, 0), "all used");
    CreditCell taking = two.cell("j/a|r:0");
    for (int i = 0; i < 5; i++) {
      taking.took(one.ordinal(), 0);
    }
    second.run();
    first.run();
    Check.equal(5L, sending.knownTaken(0, one.ordinal()));
    Check.that(sending.reserve(0, one.ordinal(), 20, 0), "credit is back");
  }

  void creditsOfAnotherBatchDoNotCount() {
    first.run();
    second.run();
    CreditCell sending = one.cell("j/a|r:1");
    sending.reserve(0, one.ordinal(), 20, 0);
    two.cell("j/a|r:0").took(one.ordinal(), 0);
    second.run();
    first.run();
    Check.equal(0L, sending.knownTaken(0, one.ordinal()));
  }

  void executorsHaveOrdinalsOfTheirOwn() {
    first.run();
    second.run();
    Check.equal(0, one.ordinal());
    Check.equal(1, two.ordinal());
  }

  void anEndIsOfOneBatchOfOneJob() {
    driver.startJob("j", java.util.List.of("src", "a"));
    driver.endBatch("j", "r:0", false);
    first.run();
    Check.that(one.endings.ends("j", "r:0"), "told");
    Check.that(!one.endings.ends("j", "r:1"), "not the next batch");
    Check.that(!one.endings.ends("k", "r:0"), "not another job");
    Check.that(!one.endings.holds("j", "r:1"), "the next batch may begin");
    second.run();
    Check.that(two.endings.ends("j", "r:0"), "an executor that comes later is told, too");
  }

  void anEndIsForgottenWhenTheNextBatchRuns() {
    driver.startJob("j", java.util.List.of("src", "a"));
    driver.endBatch("j", "r:0", false);
    first.run();
    driver.located("j", 0, "r:0", java.util.Map.of(0, "0"));
    first.run();
    Check.that(!one.endings.none(), "its own batch changes nothing");
    driver.located("j", 0, "r:1", java.util.Map.of(0, "0"));
    first.run();
    Check.that(one.endings.none(), "done with");
  }

  void aHoldLastsUntilTheJobBeginsANewLife() {
    driver.startJob("j", java.util.List.of("src", "a"));
    driver.endBatch("j", "r:0", true);
    driver.located("j", 0, "r:1", java.util.Map.of(0, "0"));
    first.run();
    Check.that(one.endings.holds("j", "r:1"), "the next batch waits");
    Check.that(!one.endings.holds("j", "r:0"), "the one that ends does not");
    driver.startJob("j", java.util.List.of("src", "a"));
    first.run();
    Check.that(one.endings.none(), "released");
  }

  void cellsGoWithTheirLastTask() {
    CreditCell cell = one.cell("j/a|r:0");
    one.cell("j/a|r:0");
    one.release(cell);
    Check.equal(1, one.cells.size());
    one.release(cell);
    Check.equal(0, one.cells.size());
  }

  void anOlderLifeIsForgotten() {
    driver.startJob("j", java.util.List.of("src", "a"));
    one.instance(new InstanceKey("j", "a", 0, 1));
    driver.startJob("j", java.util.List.of("src", "a"));
    first.run();
    Check.equal(0, one.instancesJson().size());
  }

  void aScheduledTaskSurvivesItsException() {
    ExecutorSide.guarded("x", () -> {
      throw new IllegalStateException("on purpose");
    }).run();
  }
}
