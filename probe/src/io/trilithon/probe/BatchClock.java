// The clock by which readers see whether their batch is over: the one internal part of Spark that
// is replaced.
package io.trilithon.probe;

import org.apache.spark.sql.execution.datasources.v2.LowLatencyClock;
import org.apache.spark.util.SystemClock;

/**
 * Readers ask Spark's LowLatencyClock before each record. For readers of a batch that ends early it
 * is a day ahead; for all others, and for the driver that plans the next batch, it is now. A reader
 * that waits for a record checks only when one arrives or its batch ends by itself.
 */
final class BatchClock extends SystemClock {
  private static final long AHEAD_MS = 24L * 3600 * 1000;

  private final Endings endings;

  private BatchClock(Endings endings) {
    this.endings = endings;
  }

  static void install(Registry registry) {
    LowLatencyClock.setClock(new BatchClock(registry.endings));
  }

  @Override
  public long getTimeMillis() {
    long now = super.getTimeMillis();
    return endings.none() || !TaskProbe.endsEarly(endings) ? now : now + AHEAD_MS;
  }
}
