// Tests of the exchange: two executors and a driver, without Spark.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;

class ExchangeTest {
  private final DriverState driver = new DriverState(new Clock());
  private final List<String> halted = new ArrayList<>();
  private final List<Long> flushTimes = new ArrayList<>();
  private final Registry one = new Registry();
  private final Registry two = new Registry();
  private final Exchange first = exchange(one, "1");
  private final Exchange second = exchange(two, "2");

  private Exchange exchange(Registry registry, String executor) {
    return new Exchange(registry, executor, message -> driver.exchange(Json.parse(message), false),
        halted::add, flushTimes::add);
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

  private static boolean due(Registry registry, long passedMs) {
    return registry.pace.due(1_000_000 * passedMs, 100, System.nanoTime());
  }

  void exchangesFollowFasterOnAllExecutorsWhileASenderWaits() throws InterruptedException {
    Check.that(!due(one, 99) && due(one, 100), "the usual pace");
    one.pace.hurry();
    Check.that(due(one, 20), "its own sender waits");
    Check.that(!due(one, 19), "but no faster than that");
    first.run();
    Check.that(!due(two, 20), "it does not know yet");
    second.run();
    Check.that(due(two, 20), "the driver told it");
    Thread.sleep(2 * ExchangePace.LASTS_MS);
    second.run();
    Check.that(!due(two, 99), "nobody waits any more");
  }

  void thePaceIsBoundedByTheNumberOfExecutors() {
    Check.equal(20L, ExchangePace.forExecutors(2));
    Check.equal(80L, ExchangePace.forExecutors(40));
    one.pace.granted(ExchangePace.forExecutors(1000));
    Check.that(due(one, 100), "never slower than usual");
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

  /** The last message of an executor and the answer to it. */
  private final List<JsonNode> messages = new ArrayList<>();

  private Exchange watched(Registry registry, String executor) {
    return new Exchange(registry, executor, message -> {
      String answer = driver.exchange(Json.parse(message), false);
      messages.addAll(List.of(Json.parse(message), Json.parse(answer)));
      return answer;
    }, halted::add, flushTimes::add);
  }

  private JsonNode last(int fromEnd) {
    return messages.get(messages.size() - fromEnd);
  }

  void anExecutorIsToldWhatChangedAndNothingElse() {
    Exchange exchange = watched(one, "1");
    for (int job = 0; job < 50; job++) {
      driver.startJob("j" + job, List.of("src", "a"));
      driver.setTable("j" + job, "a",
          (ObjectNode) Json.parse("{\"generation\":1,\"weights\":[1]}"));
      driver.endBatch("j" + job, "r" + job + ":0", false);
    }
    exchange.run();
    Check.equal(50, last(1).path("tables").size());
    Check.equal(50, last(1).path("endings").size());
    exchange.run();
    Check.that(!last(1).has("tables"), "nothing changed");
    driver.setTable("j7", "a", (ObjectNode) Json.parse("{\"generation\":2,\"weights\":[1]}"));
    driver.endBatch("j3", "r3:1", false);
    exchange.run();
    Check.equal("[j7/a]", last(1).path("tables").propertyStream().map(e -> e.getKey()).toList()
        .toString());
    Check.equal("[r3]", last(1).path("endings").propertyStream().map(e -> e.getKey()).toList()
        .toString());
    Check.equal(0, last(1).path("incarnations").size());
    Check.that(one.endings.endUs("r3", 1) < Endings.NEVER, "learnt");
    Check.that(one.endings.endUs("r4", 0) < Endings.NEVER, "and kept");
  }

  void theTablesOfJobsThatEndedAreForgotten() {
    for (int job = 0; job < 30; job++) {
      driver.startJob("j" + job, List.of("src", "a"));
      driver.setTable("j" + job, "a",
          (ObjectNode) Json.parse("{\"generation\":1,\"weights\":[1]}"));
    }
    first.run();
    Check.equal(30, one.tables());
    for (int job = 0; job < 29; job++) {
      driver.endJob("j" + job);
    }
    first.run();
    Check.equal(1, one.tables());
    Check.equal(1L, one.table("j29/a").get().generation);
    // Who was away for longer than changes are remembered is told everything.
    Versions few = new Versions(2);
    for (int version = 1; version <= 5; version++) {
      few.put("n" + version, version);
    }
    Check.equal(3L, few.oldest());
    Check.equal(List.of("n4", "n5"), few.since(3));
    few.put("n4", 6);
    Check.equal(List.of("n5", "n4"), few.since(3));
  }

  void cellsThatStandStillAreNotRepeatedForEver() {
    Exchange exchange = watched(one, "1");
    CreditCell cell = one.cell("j/a|r:0");
    cell.reserve(0, one.ordinal(), 20, 0);
    for (int i = 0; i <= CellReports.REPEATS; i++) {
      exchange.run();
      Check.equal(1, last(2).path("cells").size());
    }
    exchange.run();
    Check.equal(0, last(2).path("cells").size());
    Check.equal(0, last(1).path("credits").size());
    second.run();
    two.cell("j/a|r:0").took(one.ordinal(), 0);
    second.run();
    exchange.run();
    Check.equal(1L, cell.knownTaken(0, one.ordinal()));
    cell.reserve(0, one.ordinal(), 20, 0);
    exchange.run();
    Check.equal(1, last(2).path("cells").size());
  }

  void whoMissedAnAnswerGetsAllCreditsAgain() {
    first.run();
    CreditCell cell = one.cell("j/a|r:0");
    cell.reserve(0, one.ordinal(), 20, 0);
    first.run();
    second.run();
    two.cell("j/a|r:0").took(one.ordinal(), 0);
    second.run();
    // An answer that never arrives.
    driver.exchange(Json.object().put("executor", "1").put("tables_version", 0), false);
    for (int i = 0; i < 2; i++) {
      first.run();
    }
    Check.equal(1L, cell.knownTaken(0, one.ordinal()));
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

  void threadsOfAJobAreKnownUntilTheyEndOrTheirExecutorIsLost() {
    Registry busy = new Registry() {
      @Override
      ObjectNode threadsJson() {
        return (ObjectNode) Json.parse("{\"j\":{\"7\":2}}");
      }
    };
    exchange(busy, "3").run();
    first.run();
    Check.equal("{\"3\":{\"7\":2}}", driver.threads("j").toString());
    Check.equal("{\"3\":{\"j\":{\"7\":2}}}", driver.drainReports().path("threads").toString());
    Check.that(!driver.drainReports().has("threads"), "only if they changed");
    driver.executorLost("3");
    Check.equal("{}", driver.threads("j").toString());
    Check.equal("{}", driver.drainReports().path("threads").toString());
  }

  void onlyTheExecutorThatIsReplacedIsHalted() {
    first.run();
    driver.halt("2", "a thread cannot be ended");
    first.run();
    Check.equal(List.of(), halted);
    second.run();
    Check.equal(List.of("a thread cannot be ended"), halted);
    driver.executorLost("2");
    second.run();
    Check.equal(1, halted.size());
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

  void anEndIsOfOneBatchOfOneRun() {
    driver.endBatch("j", "r:4", false);
    first.run();
    long endUs = one.endings.endUs("r", 4);
    Check.that(endUs < Endings.NEVER, "told");
    Check.equal(endUs, one.endings.endUs("r", 3));
    Check.equal(Endings.NEVER, one.endings.endUs("r", 5));
    Check.equal(Endings.NEVER, one.endings.endUs("s", 4));
    Check.that(!one.endings.holds("r", 5), "the next batch may begin");
    second.run();
    Check.equal(endUs, two.endings.endUs("r", 4));
  }

  void allReadersOfABatchEndAtTheSameTimeWhenAllKnow() {
    long toldUs = one.clock.nowUs();
    driver.endBatch("j", "r:4", false);
    first.run();
    BatchSignal signal = new BatchSignal(one, null, "j", 1, "r", 4);
    long leftMs = signal.remainingMs(60_000);
    Check.that(leftMs > 0, "it goes on for a moment");
    Check.that(leftMs <= DriverState.END_AHEAD_US / 1000, "but not longer");
    Check.equal(1L, signal.remainingMs(1));
    while (one.clock.nowUs() < toldUs + DriverState.END_AHEAD_US + 50_000) {
      Thread.onSpinWait();
    }
    Check.equal(0L, signal.remainingMs(60_000));
    Check.equal(60_000L, new BatchSignal(one, null, "j", 1, "r", 5).remainingMs(60_000));
  }

  void aHoldIsOfTheLaterBatchesOfItsRun() {
    driver.endBatch("j", "r:4", true);
    first.run();
    Check.that(one.endings.holds("r", 5), "the next batch reads nothing");
    Check.that(one.endings.holds("r", 6), "nor any later one");
    Check.that(!one.endings.holds("r", 4), "the one that ends is not held");
    Check.that(!one.endings.holds("s", 5), "nor is another run");
    driver.endBatch("j", "r:5", false);
    first.run();
    Check.that(one.endings.holds("r", 5), "no other end lets it go");
  }

  void aHoldOutlivesItsRunForTasksThatAreStillAlive() {
    driver.endBatch("j", "r:4", true);
    driver.startJob("j", java.util.List.of("src", "a"));
    first.run();
    Check.that(one.endings.holds("r", 5), "the stopped run must not read on");
    Endings endings = new Endings();
    endings.set("j", "r", 4, 0, true, 1);
    endings.set("k", "other", 7, 0, true, 2);
    endings.stopped("j", 0, 3);
    endings.stopped("j", Endings.KEEP_US, 4);
    Check.that(endings.holds("r", 5), "kept for a while");
    endings.stopped("j", Endings.KEEP_US + 1, 5);
    Check.that(!endings.holds("r", 5), "forgotten");
    Check.that(endings.holds("other", 8), "another job's");
    Check.equal(1, endings.size());
  }

  void aReaderThatBeginsAsksForWhatTheDriverKnowsNow() {
    driver.startJob("j", java.util.List.of("src", "a"));
    first.run();
    one.connect(first::runUnlessSince);
    driver.endBatch("j", "r:0", true);
    BatchSignal next = new BatchSignal(one, null, "j", 1, "r", 1);
    Check.that(!next.held(), "the exchange is older than the hold");
    next.awaitCurrent();
    Check.that(next.held(), "asked for");
    Check.equal(9L, next.remainingMs(9));
  }

  void readersThatBeginTogetherShareOneExchange() {
    int[] asked = {0};
    one.connect(since -> {
      asked[0]++;
      first.runUnlessSince(since);
    });
    long beganNs = System.nanoTime();
    BatchSignal early = new BatchSignal(one, null, "j", 1, "r", 1);
    Check.that(one.currentSince(System.nanoTime()), "answered");
    early.awaitCurrent();
    Check.that(one.currentSince(beganNs), "known already");
    Check.equal(1, asked[0]);
  }

  void aReaderOfNoJobIsNeverEnded() {
    driver.endBatch("j", "r:0", true);
    first.run();
    BatchSignal signal = new BatchSignal(one, null, null, 0, "", 0);
    signal.awaitCurrent();
    Check.equal(9L, signal.remainingMs(9));
    Check.that(!signal.held(), "goes on");
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
    Check.equal(0, one.instanceRows().size());
  }

  void aScheduledTaskSurvivesItsException() {
    ExecutorSide.guarded("x", () -> {
      throw new IllegalStateException("on purpose");
    }).run();
  }

  void aFlushTimeIsSetOnceInEachExecutorAndTheDriverKnowsWhere() {
    first.run();
    Check.equal(List.of(), flushTimes);
    driver.flushTime(3);
    first.run();
    first.run();
    Check.equal(List.of(3L), flushTimes);
    first.run();
    second.run();
    Check.equal(List.of(3L, 3L), flushTimes);
    Check.equal("{\"1\":3,\"2\":-1}", Json.write(driver.flushTimes()));
    driver.executorLost("2");
    Check.equal("{\"1\":3}", Json.write(driver.flushTimes()));
  }

  void aFlushTimeBelowZeroIsRefused() {
    driver.flushTime(5);
    try {
      driver.flushTime(-1);
      throw new AssertionError("accepted");
    } catch (IllegalArgumentException e) {
      first.run();
      Check.equal(List.of(5L), flushTimes);
    }
  }
}
