// A sequence lock: consistent reads of counters that one task thread writes and the reporter reads.
package io.trilithon.probe;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.function.Supplier;

/**
 * One writer, never blocked; a reader retries if a write came in between. About 2 ns per write on
 * x86; a lock costs ten times that. If the writer never pauses, a reader gives up retrying: its
 * copy then mixes two neighbouring records, each number by itself is right, and the next report is
 * not affected.
 */
class SeqLock {
  private static final VarHandle VERSION;

  static {
    try {
      VERSION = MethodHandles.lookup().findVarHandle(SeqLock.class, "version", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private long version;

  final void beginWrite() {
    VERSION.setOpaque(this, version + 1);
    VarHandle.storeStoreFence();
  }

  final void endWrite() {
    VERSION.setRelease(this, version + 1);
  }

  /** The body must only copy. */
  final <T> T read(int tries, Supplier<T> copy) {
    T result = null;
    for (int i = 0; i < tries; i++) {
      long before = (long) VERSION.getAcquire(this);
      if ((before & 1) == 0) {
        result = copy.get();
        VarHandle.loadLoadFence();
        if ((long) VERSION.getOpaque(this) == before) {
          return result;
        }
      }
      Thread.onSpinWait();
    }
    return result == null ? copy.get() : result;
  }
}
