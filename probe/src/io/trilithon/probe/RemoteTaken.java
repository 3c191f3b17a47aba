// Owns what a sender believes of records taken on other executors between two exchanges.
package io.trilithon.probe;

/**
 * Known counts are 100 to 200 ms old. A fixed credit B would cap a far receiver at B / 0.2 s however fast it is, so the
 * count is carried on. How fast, depends on whether the receiver keeps up (what was sent a moment before the count was
 * made, had been taken): if it does, at up to twice its best rate, so that a fast one is found within a few exchanges
 * (as TCP's slow start does it); if records wait there, at its present rate, so that B and not more stays in flight. A
 * receiver that suddenly slows down gets at most one exchange's worth of records too many.
 */
final class RemoteTaken {
  /** Beyond this age nothing is carried on: the exchange itself is in trouble. */
  static final long MAX_AGE_US = 500_000;
  /** A record on its way this long is in transport, not waiting. */
  static final long TRANSPORT_US = 60_000;
  private static final double PROBE_GAIN = 2;
  private static final double BEST_RATE_KEPT = 0.99;
  private static final double SMOOTHING = 0.5;
  private static final int HISTORY = 8;

  private final long[] sentAtUs = new long[HISTORY];
  private final long[] sentCount = new long[HISTORY];
  private int exchanges;
  private double presentPerUs;
  private double bestPerUs;
  private volatile Known known = new Known(0, 0, 0);

  private record Known(long taken, long atUs, double perUs) {}

  /** One exchange: the count was {@code taken} at a moment of driver time; {@code sent} is so now. */
  void update(long taken, long atUs, long nowUs, long sent) {
    Known old = known;
    if (atUs > old.atUs) {
      if (old.atUs > 0) {
        double rate = Math.max(0, taken - old.taken) / (double) (atUs - old.atUs);
        presentPerUs += SMOOTHING * (rate - presentPerUs);
        bestPerUs = Math.max(rate, bestPerUs * BEST_RATE_KEPT);
      }
      boolean keepsUp = taken >= sentBefore(atUs - TRANSPORT_US);
      known = new Known(taken, atUs, keepsUp ? PROBE_GAIN * bestPerUs : presentPerUs);
    }
    sentAtUs[exchanges % HISTORY] = nowUs;
    sentCount[exchanges++ % HISTORY] = sent;
  }

  /** What had been sent at the last exchange before a moment; 0 if that is longer ago than is remembered. */
  private long sentBefore(long timeUs) {
    long count = 0;
    for (int i = 0; i < HISTORY; i++) {
      if (sentAtUs[i] > 0 && sentAtUs[i] <= timeUs) {
        count = Math.max(count, sentCount[i]);
      }
    }
    return count;
  }

  /** An estimate that is never above what was sent there. */
  long estimate(long nowUs, long sent) {
    Known k = known;
    long age = Math.min(MAX_AGE_US, Math.max(0, nowUs - k.atUs));
    return Math.min(sent, k.taken + (long) (k.perUs * age));
  }

  long known() {
    return known.taken;
  }
}
