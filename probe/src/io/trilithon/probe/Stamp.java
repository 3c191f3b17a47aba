// Packs a record's stamp: when it left its sender (driver time) and which executor sent it.
package io.trilithon.probe;

/**
 * 53 bits of microseconds (good until the year 2255) above 10 bits of the sending executor's
 * ordinal.
 */
final class Stamp {
  static final int MAX_EXECUTORS = 1024;
  /** Of a copy that nobody counts: for an idle task, or one that was delivered before. */
  static final long UNCOUNTED = Long.MIN_VALUE;
  private static final int BITS = 10;

  private Stamp() {}

  static long pack(long timeUs, int ordinal) {
    return timeUs << BITS | ordinal & MAX_EXECUTORS - 1;
  }

  static long timeUs(long stamp) {
    return stamp >>> BITS;
  }

  static int ordinal(long stamp) {
    return (int) (stamp & MAX_EXECUTORS - 1);
  }
}
