// Driver time inside one JVM: a cheap wall clock and its offset to the driver's.
package io.trilithon.probe;

import java.time.Instant;

/**
 * The offset is 0 on the driver; on executors it is that of the fastest recent exchange, as in NTP.
 */
final class Clock {
  private static final int SAMPLES = 64;

  private final long[] offsets = new long[SAMPLES];
  private final long[] errors = new long[SAMPLES];
  private int seen;
  private volatile long anchorUs = anchor();
  private volatile long offsetUs;
  private volatile long errorUs;

  /** Driver time in microseconds since the epoch; about 25 ns per call. */
  long nowUs() {
    return anchorUs + offsetUs + System.nanoTime() / 1000;
  }

  /** This JVM's own time, on which offsets are measured. */
  long localUs() {
    return anchorUs + System.nanoTime() / 1000;
  }

  long offsetUs() {
    return offsetUs;
  }

  /** Half of the fastest round trip: the true offset is within this of the published one. */
  long errorUs() {
    return errorUs;
  }

  /**
   * Follows the system clock (NTP moves it); only the driver does so, executors follow the driver.
   */
  void reanchor() {
    anchorUs = anchor();
  }

  /** One exchange: sent and answered by this JVM's clock, with the driver's time in between. */
  synchronized void sample(long askedUs, long answeredUs, long driverUs) {
    int slot = seen++ % SAMPLES;
    errors[slot] = Math.max(1, (answeredUs - askedUs + 1) / 2);
    offsets[slot] = driverUs - (askedUs + answeredUs) / 2;
    int best = 0;
    for (int i = 1; i < Math.min(seen, SAMPLES); i++) {
      if (errors[i] < errors[best]) {
        best = i;
      }
    }
    offsetUs = offsets[best];
    errorUs = errors[best];
  }

  private static long anchor() {
    long shortest = Long.MAX_VALUE;
    long anchor = 0;
    for (int i = 0; i < 20; i++) {
      long before = System.nanoTime();
      Instant wall = Instant.now();
      long after = System.nanoTime();
      if (after - before < shortest) {
        shortest = after - before;
        long wallUs = wall.getEpochSecond() * 1_000_000L + wall.getNano() / 1000;
        anchor = wallUs - (before + after) / 2000;
      }
    }
    return anchor;
  }
}
