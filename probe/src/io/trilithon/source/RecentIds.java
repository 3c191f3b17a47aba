// The ids of the latest records of one partition of an internal topic, each with its first offset.
package io.trilithon.source;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.Platform;

/**
 * A record is a double if a record with the same id stands before it: a replay has written it again.
 * Ids are kept as 128 bits of hash. There are two generations: when the younger is full it becomes
 * the older, and the older is forgotten. So at least the latest {@code kept} ids are known, at most
 * twice as many.
 */
final class RecentIds {
  private static final int LEAST = 1 << 10;

  private final int kept;
  private Table younger;
  private Table older;
  /** Everything before this offset has been added, as far back as the memory goes. */
  private long next = -1;

  RecentIds(int kept) {
    this.kept = kept;
    younger = new Table(Math.min(kept, LEAST));
    older = new Table(1);
  }

  /** The offset up to which ids are known; -1 before the first. */
  synchronized long next() {
    return next;
  }

  /** The records before this offset are not there, or have been added. */
  synchronized void knownUntil(long offset) {
    next = Math.max(next, offset);
  }

  /** Adds a record; whether it is the first with this id. Adding it twice makes no difference. */
  synchronized boolean first(byte[] id, long offset) {
    long high = hash(id, 0x5bd1e995L);
    long low = hash(id, 0x27d4eb2fL);
    next = Math.max(next, offset + 1);
    long known = younger.get(high, low);
    if (known < 0) {
      known = older.get(high, low);
    }
    if (known >= 0 && known < offset) {
      return false;
    }
    if (younger.size == kept) {
      older = younger;
      younger = new Table(Math.min(kept, LEAST));
    }
    younger.put(high, low, offset);
    return true;
  }

  private static long hash(byte[] id, long seed) {
    return XXH64.hashUnsafeBytes(id, Platform.BYTE_ARRAY_OFFSET, id.length, seed);
  }

  /** Open addressing over three arrays; half of the places stay empty. An offset of -1 is empty. */
  private static final class Table {
    private long[] high;
    private long[] low;
    private long[] offsets;
    private int size;

    Table(int expected) {
      allocate(Math.max(2, Integer.highestOneBit(Math.max(1, expected - 1)) * 4));
    }

    private void allocate(int places) {
      high = new long[places];
      low = new long[places];
      offsets = new long[places];
      Arrays.fill(offsets, -1);
    }

    private int place(long h, long l) {
      int mask = offsets.length - 1;
      int place = (int) (h ^ h >>> 32) & mask;
      while (offsets[place] >= 0 && (high[place] != h || low[place] != l)) {
        place = place + 1 & mask;
      }
      return place;
    }

    long get(long h, long l) {
      return offsets[place(h, l)];
    }

    void put(long h, long l, long offset) {
      int place = place(h, l);
      if (offsets[place] < 0) {
        if (2 * (size + 1) > offsets.length) {
          grow();
          place = place(h, l);
        }
        size++;
      }
      high[place] = h;
      low[place] = l;
      offsets[place] = offset;
    }

    private void grow() {
      long[] oldHigh = high;
      long[] oldLow = low;
      long[] oldOffsets = offsets;
      allocate(2 * oldOffsets.length);
      for (int i = 0; i < oldOffsets.length; i++) {
        if (oldOffsets[i] >= 0) {
          int place = place(oldHigh[i], oldLow[i]);
          high[place] = oldHigh[i];
          low[place] = oldLow[i];
          offsets[place] = oldOffsets[i];
        }
      }
    }
  }
}
