// The inter-arrival times of an instance, from its senders' stamps.
package io.trilithon.probe;

import java.util.Arrays;

/**
 * Records of several senders reach an instance slightly out of order, and the sum of squares of
 * unsorted gaps would be too large; so the last stamps are kept sorted and a gap is counted when
 * the oldest leaves.
 */
final class Arrivals {
  private static final int WINDOW = 16;

  final Moments gaps = new Moments();
  private final long[] sorted = new long[WINDOW];
  private int size;
  private long last;

  void add(long timeUs) {
    if (size == WINDOW) {
      release(sorted[0]);
      System.arraycopy(sorted, 1, sorted, 0, --size);
    }
    int at = Arrays.binarySearch(sorted, 0, size, timeUs);
    at = at < 0 ? -at - 1 : at;
    System.arraycopy(sorted, at, sorted, at + 1, size - at);
    sorted[at] = timeUs;
    size++;
  }

  /** At the end of a task: the gap across a batch boundary is the boundary's, not the stream's. */
  void flush() {
    for (int i = 0; i < size; i++) {
      release(sorted[i]);
    }
    size = 0;
    last = 0;
  }

  private void release(long timeUs) {
    if (last > 0 && timeUs >= last) {
      gaps.add(timeUs - last);
    }
    last = Math.max(last, timeUs);
  }
}
