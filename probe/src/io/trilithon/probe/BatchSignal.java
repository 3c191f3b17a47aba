// What a reader asks about the batch of its task: whether it ends early, whether it may begin.
package io.trilithon.probe;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.spark.TaskContext;

/** Without a job, as in a query of somebody else, a batch never ends early. */
public final class BatchSignal {
  private static final long RETRY_NS = 10_000_000;

  private final Registry registry;
  private final TaskContext task;
  private final String job;
  private final int incarnation;
  private final String run;
  private final long batch;
  private final long createdNs = System.nanoTime();

  BatchSignal(
      Registry registry, TaskContext task, String job, int incarnation, String run, long batch) {
    this.registry = registry;
    this.task = task;
    this.job = job;
    this.incarnation = incarnation;
    this.run = run;
    this.batch = batch;
  }

  /** The signal of the task that runs on the calling thread. */
  public static BatchSignal ofTask() {
    return TaskProbe.current().signal();
  }

  /** The progress of a reader that begins in this batch; the supplier gives its next offset. */
  public ReaderProgress begin(String partition, LongSupplier nextOffset) {
    ReaderProgress.Key key = new ReaderProgress.Key(job, incarnation, partition);
    ReaderProgress progress =
        job == null ? new ReaderProgress(key, registry.clock) : registry.reader(key);
    progress.begin(batch, nextOffset);
    return progress;
  }

  /**
   * What readers of a partition keep on this executor from batch to batch while the incarnation of
   * the job lasts; made anew without a job.
   */
  public <T> T kept(String partition, Class<T> type, Supplier<T> make) {
    return job == null ? make.get()
        : type.cast(registry.memory(new ReaderProgress.Key(job, incarnation, partition), make));
  }

  /** How long the reader may wait for a record, at most this long; 0 if the batch has ended. */
  public long remainingMs(long limitMs) {
    long endUs = job == null ? Endings.NEVER : registry.endings.endUs(run, batch);
    if (endUs == Endings.NEVER) {
      return limitMs;
    }
    long leftUs = endUs - registry.clock.nowUs();
    return leftUs <= 0 ? 0 : Math.min(limitMs, (leftUs + 999) / 1000);
  }

  /** An earlier batch ended with a hold: no record may be read until the query is stopped. */
  public boolean held() {
    return job != null && registry.endings.holds(run, batch);
  }

  /**
   * Waits for an answer of the driver to a question that was asked after this batch began. Without
   * it a reader on an executor that had no reader before could miss a hold.
   */
  public void awaitCurrent() {
    while (job != null && !registry.currentSince(createdNs)) {
      killIfInterrupted();
      LockSupport.parkNanos(RETRY_NS);
    }
  }

  /** Waits for a moment; ends with the task's own exception if the task is killed meanwhile. */
  public void pause(long ms) {
    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(ms));
    killIfInterrupted();
  }

  private void killIfInterrupted() {
    if (task != null) {
      task.killTaskIfInterrupted();
    }
  }
}
