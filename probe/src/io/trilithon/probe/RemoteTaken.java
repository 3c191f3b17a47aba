// Estimates, between two exchanges, how many records receivers on other executors have taken.
package io.trilithon.probe;

/**
 * Known counts are 100 to 200 ms old, or 20 to 40 while senders wait for them. A fixed credit B
 * would cap a remote receiver at B / 0.2 s however fast it is, so the count is extrapolated. If the
 * receiver keeps up (it had taken what was sent shortly before the count), the estimate grows at up
 * to twice its best rate, so that a fast receiver is found within a few exchanges, as in TCP's slow
 * start. If records wait there, it grows at the present rate, so that no more than B stay in
 * flight. A receiver that suddenly slows down gets at most one exchange's worth of records too
 * many.
 */
final class RemoteTaken {
  /** An older count is not extrapolated: the exchange itself is failing. */
  static final long MAX_AGE_US = 500_000;
  /** A record that was sent less than this ago may be in transport rather than waiting. */
  static final long TRANSPORT_US = 60_000;
  /** A rate over less is that of a few flushes of the shuffle, of 5 ms each. */
  static final long LEAST_SPAN_US = 15_000;
  private static final double PROBE_GAIN = 2;
  private static final double BEST_RATE_KEPT = 0.99;
  private static final double SMOOTHING = 0.5;
  private static final int HISTORY = 16;

  private final long[] sentAtUs = new long[HISTORY];
  private final long[] sentCount = new long[HISTORY];
  private int exchanges;
  private double presentPerUs;
  private double bestPerUs;
  private long rateTaken;
  private long rateAtUs;
  private volatile Known known = new Known(0, 0, 0, true);

  private record Known(long taken, long atUs, double perUs, boolean keepsUp) {}

  /**
   * One exchange: {@code taken} was the count at {@code atUs} of driver time; {@code sent} is the
   * count now.
   */
  void update(long taken, long atUs, long nowUs, long sent) {
    if (atUs > known.atUs) {
      measureRate(taken, atUs);
      boolean keepsUp = taken >= sentBefore(atUs - TRANSPORT_US);
      known = new Known(taken, atUs, keepsUp ? PROBE_GAIN * bestPerUs : presentPerUs, keepsUp);
    }
    sentAtUs[exchanges % HISTORY] = nowUs;
    sentCount[exchanges++ % HISTORY] = sent;
  }

  private void measureRate(long taken, long atUs) {
    if (rateAtUs > 0 && atUs - rateAtUs < LEAST_SPAN_US) {
      return;
    }
    if (rateAtUs > 0) {
      double rate = Math.max(0, taken - rateTaken) / (double) (atUs - rateAtUs);
      presentPerUs += SMOOTHING * (rate - presentPerUs);
      bestPerUs = Math.max(rate, bestPerUs * BEST_RATE_KEPT);
    }
    rateTaken = taken;
    rateAtUs = atUs;
  }

  /** The rate of late, by the times at which the receiver counted. */
  double presentPerUs() {
    return presentPerUs;
  }

  /** Whether the receiver had taken, by the last count, what was sent shortly before. */
  boolean keepsUp() {
    return known.keepsUp;
  }

  /** The records sent by the last exchange before a time; 0 if that is beyond the history. */
  private long sentBefore(long timeUs) {
    long count = 0;
    for (int i = 0; i < HISTORY; i++) {
      if (sentAtUs[i] > 0 && sentAtUs[i] <= timeUs) {
        count = Math.max(count, sentCount[i]);
      }
    }
    return count;
  }

  /** The estimated count, never above the records sent. */
  long estimate(long nowUs, long sent) {
    Known k = known;
    long age = Math.min(MAX_AGE_US, Math.max(0, nowUs - k.atUs));
    return Math.min(sent, k.taken + (long) (k.perUs * age));
  }

  long known() {
    return known.taken;
  }
}
