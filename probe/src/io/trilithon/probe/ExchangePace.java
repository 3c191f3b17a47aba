// How long after one exchange with the driver an executor begins the next.
package io.trilithon.probe;

/**
 * An exchange every 100 ms is enough for tables. But a sender that begins to send to a fast
 * receiver on another executor learns with each count that it may send twice as much, and a count takes two
 * exchanges: 20,000 records/s would be reached after two seconds, at the start of every batch. So
 * exchanges follow each other faster while a sender waits for the count of a receiver that keeps
 * up. The driver tells the other executors, which have the counts, and bounds the pace so that its
 * work does not grow with their number.
 */
final class ExchangePace {
  /** The fastest pace, and the exchanges per second that the driver grants to all together. */
  static final long FASTEST_MS = 20;
  private static final long DRIVER_PER_S = 500;
  /** A sender that waits asks again with every slice; so long does one question last. */
  static final long LASTS_MS = 100;

  private volatile long hurriedNs = System.nanoTime() - 1_000_000 * LASTS_MS;
  private volatile long grantedMs;

  /** The pace for so many executors, in ms between two exchanges. */
  static long forExecutors(int executors) {
    return Math.max(FASTEST_MS, 1000L * executors / DRIVER_PER_S);
  }

  /** A sender of this executor waits for a count. */
  void hurry() {
    hurriedNs = System.nanoTime();
  }

  /** Whether a sender of this executor waited for a count a moment ago. */
  boolean hurried(long nowNs) {
    return nowNs - hurriedNs < 1_000_000 * LASTS_MS;
  }

  /** The pace that the driver granted because some sender waits; 0 if none does. */
  void granted(long ms) {
    grantedMs = ms;
  }

  /** Whether the next exchange is due, so long after the last one began. */
  boolean due(long passedNs, long usualMs, long nowNs) {
    long ms = grantedMs > 0 ? grantedMs : hurried(nowNs) ? FASTEST_MS : usualMs;
    return passedNs >= 1_000_000 * Math.min(ms, usualMs);
  }
}
