// Back-pressure: a sender waits here while its receiver has no credit left.
package io.trilithon.probe;

import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;
import org.apache.spark.TaskContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

final class Gate {
  private static final Logger LOG = LoggerFactory.getLogger(Gate.class);
  private static final long FIRST_SLICE_NS = 100_000;
  private static final long LAST_SLICE_NS = 2_000_000;
  private static volatile long stuckNs = 10_000_000_000L;

  private Gate() {}

  /**
   * If the receiver takes no record for this long, one passes without credit, counted as forced: no
   * deadlock.
   */
  static void stuckAfterMs(long ms) {
    stuckNs = ms * 1_000_000;
  }

  /**
   * Counts the time that the calling thread is parked before a task, slice by slice, and records
   * that pass without credit.
   */
  interface Meter {
    void parked(int task, long ns);

    /** The sender waits for the count of a receiver that may have room: a message would help. */
    default void awaitsCount() {}

    void forced();
  }

  /**
   * Waits for a credit of the task that {@code choose} gives, and returns that task. It calls
   * {@code choose} after every slice, so that a new table takes effect for a sender that is parked.
   */
  static int pass(CreditCell cell, IntSupplier choose, IntSupplier credit, int self, Clock clock,
      TaskContext task, Meter meter) {
    int target = choose.getAsInt();
    if (cell.reserve(target, self, credit.getAsInt(), clock.nowUs())) {
      return target;
    }
    long slice = FIRST_SLICE_NS;
    long last = System.nanoTime();
    long progressAt = last;
    long progress = cell.knownTaken(target, self);
    while (true) {
      if (cell.awaitsCount(target, self)) {
        meter.awaitsCount();
      }
      LockSupport.parkNanos(slice);
      long now = System.nanoTime();
      meter.parked(target, now - last);
      last = now;
      slice = Math.min(LAST_SLICE_NS, slice * 2);
      if (task != null && task.isInterrupted()) {
        task.killTaskIfInterrupted();
      }
      int chosen = choose.getAsInt();
      if (cell.reserve(chosen, self, credit.getAsInt(), clock.nowUs())) {
        return chosen;
      }
      long taken = cell.knownTaken(chosen, self);
      if (taken != progress || chosen != target) {
        progress = taken;
        progressAt = now;
        target = chosen;
      }
      boolean interrupted = Thread.currentThread().isInterrupted();
      if (interrupted || now - progressAt > stuckNs) {
        if (!interrupted) {
          LOG.warn("gate of {} task {}: no record taken for {} s, one passes without credit",
              cell.name, chosen, (now - progressAt) / 1_000_000_000);
        }
        cell.sent.incrementAndGet(chosen);
        meter.forced();
        return chosen;
      }
    }
  }
}
