// The two kinds of work of synthetic workloads: burning CPU and waiting. Both end when their task is
// killed.
package io.trilithon.probe;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import org.apache.spark.TaskContext;

final class Workload {
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
  private static final int MIX_ROUNDS = 2000;

  private Workload() {}

  /** Burns this much CPU time of the calling thread: under contention it takes longer. */
  static double work(double ms) {
    TaskContext task = TaskContext.get();
    long end = THREADS.getCurrentThreadCpuTime() + (long) (ms * 1e6);
    long mixed = end | 1;
    while (THREADS.getCurrentThreadCpuTime() < end) {
      for (int i = 0; i < MIX_ROUNDS; i++) {
        mixed = mixed * 6364136223846793005L + 1442695040888963407L;
      }
      if (ended(task)) {
        throw new TaskEnded();
      }
    }
    return mixed == 0 ? 0 : ms;
  }

  /** Sleeps, like an operator that waits for another system's response. */
  static double pause(double ms) {
    long ns = (long) (ms * 1e6);
    try {
      Thread.sleep(ns / 1_000_000, (int) (ns % 1_000_000));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    if (ended(TaskContext.get())) {
      throw new TaskEnded();
    }
    return ms;
  }

  /** A library may clear a thread's interrupt; the task remembers that it was killed. */
  private static boolean ended(TaskContext task) {
    return Thread.currentThread().isInterrupted() || task != null && task.isInterrupted();
  }
}
