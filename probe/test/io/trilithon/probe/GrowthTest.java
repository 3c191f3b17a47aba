// Tests that nothing which the probe keeps grows with batches, runs or lost executors.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

class GrowthTest {
  private static final int EXECUTORS = 4;
  private static final String TABLE = "{\"generation\":1,\"weights\":[1,1]}";

  private long stepUs;
  private final DriverState driver = new DriverState(new Clock());
  private final Map<String, Executor> executors = new HashMap<>();
  private int started;

  /** An executor without Spark: what its plugin does, by hand. */
  private final class Executor {
    final String id = Integer.toString(started++);
    final Registry registry = new Registry();
    final Report report = new Report(registry, id);
    final Exchange exchange = new Exchange(registry, id,
        message -> driver.exchange(Json.parse(message), false), reason -> { }, ms -> { });

    void batch(int incarnation, String batch, int index) {
      CreditCell cell = registry.cell(CreditCell.name("j/a", batch));
      cell.reserve(index, registry.ordinal(), 20, 0);
      cell.took(registry.ordinal(), index);
      Instance instance = registry.instance(new InstanceKey("j", "a", index, incarnation));
      instance.take(instance.inbound("src"), 1, 2, System.nanoTime(), 1);
      registry.reader(new ReaderProgress.Key("j", incarnation, "t-" + index)).begin(0, () -> 1);
      registry.memory(new ReaderProgress.Key("j", incarnation, "t-" + index), Object::new);
      exchange.run();
      driver.report(SentReport.of(report.next("host")));
      registry.release(cell);
    }
  }

  private Executor start() {
    Executor executor = new Executor();
    executors.put(executor.id, executor);
    executor.exchange.run();
    return executor;
  }

  private Map<String, Integer> sizes() {
    Map<String, Integer> sizes = new HashMap<>();
    add(sizes, "driver", driver.sizes());
    executors.values().forEach(executor -> add(sizes, "executors", executor.registry.sizes()));
    return sizes;
  }

  private static void add(Map<String, Integer> sizes, String where, ObjectNode more) {
    more.properties().forEach(
        e -> sizes.merge(where + "." + e.getKey(), e.getValue().asInt(), Integer::sum));
  }

  void nothingGrowsWithBoundariesRunsAndLosses() {
    for (int i = 0; i < EXECUTORS; i++) {
      start();
    }
    int incarnation = driver.startJob("j", List.of("src", "a"));
    driver.setTable("j", "a", (ObjectNode) Json.parse(TABLE));
    Map<String, Integer> first = Map.of();
    Map<String, Integer> last = Map.of();
    for (int boundary = 0; boundary < 500; boundary++) {
      String batch = "run" + boundary / 10 + ":" + boundary;
      driver.located("j", 1, batch, Map.of(0, executors.keySet().iterator().next()));
      for (Executor executor : List.copyOf(executors.values())) {
        executor.batch(incarnation, batch, boundary % 2);
      }
      driver.endBatch("j", batch, false);
      driver.drainReports();
      if (boundary % 10 == 9) {
        Executor lost = executors.values().iterator().next();
        driver.halt(lost.id, "a thread cannot be ended");
        driver.executorLost(lost.id);
        // Its last messages come in after the scheduler has said that it is gone.
        lost.batch(incarnation, batch, 0);
        driver.halt(lost.id, "once more");
        executors.remove(lost.id);
        start();
        incarnation = driver.startJob("j", List.of("src", "a"));
      }
      if (boundary == 45) {
        first = sizes();
      } else if (boundary == 495) {
        last = sizes();
      }
    }
    // These go after a time, as the next test shows.
    Check.that(last.remove("driver.report_characters")
        <= 1.1 * first.remove("driver.report_characters"), "reports grow");
    for (String timed : List.of("driver.cells", "driver.endings", "executors.endings")) {
      first.remove(timed);
      last.remove(timed);
    }
    Check.equal(first, last);
  }

  void cellsAndEndingsGoAfterATime() {
    CreditBoard board = new CreditBoard();
    Endings endings = new Endings();
    int mostCells = 0;
    for (int batch = 0; batch < 500; batch++) {
      stepUs += 1_000_000;
      board.update(batch % 7, Json.parse("[{\"cell\":\"j/a|r:" + batch + "\",\"at_us\":" + stepUs
          + ",\"sent\":{\"0\":1},\"taken\":{}}]"), stepUs);
      board.answer(batch % 7, false);
      endings.set("j", "run" + batch, batch, stepUs, false, batch);
      endings.stopped("j", stepUs, batch);
      mostCells = Math.max(mostCells, board.cells());
    }
    Check.that(mostCells <= 2 + CreditBoard.EXPIRY_US / 1_000_000, mostCells + " cells");
    Check.that(board.senders() <= 7, board.senders() + " senders");
    Check.that(endings.size() <= 2 + Endings.KEEP_US / 1_000_000, endings.size() + " endings");
  }

  void threadsOfAPoolHaveOneName() {
    Check.equal("block-manager-ask-thread-pool-#",
        Control.poolOf("block-manager-ask-thread-pool-117"));
    Check.equal("Executor task launch worker for task # in stage # (TID #)",
        Control.poolOf("Executor task launch worker for task 0.0 in stage 12.0 (TID 340)"));
    Check.equal("stream execution thread for [id = #, runId = #]", Control.poolOf(
        "stream execution thread for [id = 3c1f0a52-8f1e-4d57-a1c5-b2f9d5a3e001, "
            + "runId = 0c1f0a52-8f1e-4d57-a1c5-b2f9d5a3e0ff]"));
  }

  void anOrdinalIsNotGivenToTwoExecutorsThatLive() {
    Executor old = start();
    for (int i = 0; i < 3 * Stamp.MAX_EXECUTORS; i++) {
      Executor next = start();
      Check.that(next.registry.ordinal() != old.registry.ordinal(), "executor " + next.id);
      driver.executorLost(next.id);
      executors.remove(next.id);
    }
    Check.equal(1, driver.sizes().path("ordinals").asInt());
  }
}
