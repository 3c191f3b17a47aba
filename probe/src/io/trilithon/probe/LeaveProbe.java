// The sending end of an edge that an internal topic carries to another part of the job: goes as
// slowly as the edge is held back, counts.
package io.trilithon.probe;

import java.util.concurrent.locks.LockSupport;
import org.apache.spark.TaskContext;

final class LeaveProbe {
  private static final long SLICE_NS = 2_000_000;
  /** How far a sender may fall behind its pace and make up for it: threads wake up late. */
  private static final long LATE_US = 20_000;

  final Instance sender;
  private final Outbound edge;
  private final String name;
  private final Registry registry;
  private final TaskContext task;
  private final BatchSignal batch;
  /** When the last record left, by the pace that it had. */
  private long lastUs;

  LeaveProbe(
      Registry registry, EdgeName name, Instance sender, TaskContext task, BatchSignal batch) {
    this.registry = registry;
    this.sender = sender;
    this.task = task;
    this.batch = batch;
    this.name = name.receiver();
    edge = sender.outbound(name.to());
  }

  /**
   * The wall clock's time, µs, at which the record may leave. When its batch ends it leaves at once:
   * the few that are under way must not keep the batch open.
   */
  long leave() {
    sender.finish(System.nanoTime());
    long last = System.nanoTime();
    long nowUs = registry.clock.nowUs();
    long pauseUs = registry.holdBacks.pauseUs(name, nowUs);
    while (pauseUs > 0 && nowUs - lastUs < pauseUs && batch.remainingMs(1) > 0
        && !Thread.currentThread().isInterrupted()) {
      LockSupport.parkNanos(SLICE_NS);
      long now = System.nanoTime();
      sender.heldBack(edge, now - last);
      last = now;
      if (task != null) {
        task.killTaskIfInterrupted();
      }
      nowUs = registry.clock.nowUs();
      pauseUs = registry.holdBacks.pauseUs(name, nowUs);
    }
    lastUs = pauseUs == 0 || pauseUs == HoldBacks.CLOSED
        ? nowUs : Math.min(nowUs, Math.max(lastUs + pauseUs, nowUs - LATE_US));
    sender.left(edge);
    return registry.clock.wallUs();
  }
}
