// Owns the one internal call with which a running real-time batch is ended early.
package io.trilithon.probe;

import java.util.Set;
import org.apache.spark.sql.execution.datasources.v2.LowLatencyClock;
import org.apache.spark.util.Clock;
import org.apache.spark.util.SystemClock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Readers ask Spark's LowLatencyClock whether their batch is over. It is put ahead by a batch's length until the tasks
 * that run now have ended: a fixed time would be missed by a reader that is just not running, and a batch that is planned
 * meanwhile (another query's, in local mode) only becomes twice as long.
 */
final class BatchClock {
  private static final Logger LOG = LoggerFactory.getLogger(BatchClock.class);
  private static final long LIMIT_NS = 5_000_000_000L;
  private static final long STEP_MS = 5;

  private BatchClock() {}

  static synchronized void endBatch(Registry registry, long aheadMs) {
    Set<TaskProbe> running = registry.runningTasks();
    Clock usual = LowLatencyClock.getClock();
    long until = System.nanoTime() + LIMIT_NS;
    try {
      LowLatencyClock.setClock(new Ahead(aheadMs));
      while (registry.anyRunning(running) && System.nanoTime() < until) {
        Thread.sleep(STEP_MS);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } finally {
      LowLatencyClock.setClock(usual);
    }
    if (registry.anyRunning(running)) {
      LOG.warn("tasks of the batch still run 5 s after it was told to end: a reader without records wakes only at its end");
    }
  }

  private static final class Ahead extends SystemClock {
    private final long aheadMs;

    Ahead(long aheadMs) {
      this.aheadMs = aheadMs;
    }

    @Override
    public long getTimeMillis() {
      return super.getTimeMillis() + aheadMs;
    }
  }
}
