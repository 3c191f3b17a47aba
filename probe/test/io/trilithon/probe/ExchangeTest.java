// Owns the tests of the exchange: two executors and a driver, without Spark.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.concurrent.atomic.AtomicInteger;

class ExchangeTest {
  private final DriverState driver = new DriverState(new Clock());
  private final Registry one = new Registry();
  private final Registry two = new Registry();
  private final AtomicInteger ended = new AtomicInteger();
  private final Exchange first = exchange(one, "1");
  private final Exchange second = exchange(two, "2");

  private Exchange exchange(Registry registry, String executor) {
    return new Exchange(registry, executor, message -> driver.exchange(Json.parse(message), false),
        aheadMs -> ended.addAndGet((int) aheadMs));
  }

  private void push(int generation, String weights) {
    driver.setTable("j", "a", (ObjectNode) Json.parse("{\"generation\":" + generation + ",\"weights\":" + weights + "}"));
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

  void aForcedBoundaryReachesEachExecutorOnce() {
    first.run();
    second.run();
    driver.endBatch(1);
    first.run();
    first.run();
    second.run();
    Check.equal(2, ended.get());
  }

  void anExecutorThatComesLaterEndsNothing() {
    driver.endBatch(1);
    first.run();
    Check.equal(0, ended.get());
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
