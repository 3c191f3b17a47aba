// The priorities of the threads that run jobs' tasks.
package io.trilithon.probe;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Below the threads of Spark and of the probe, which have Java's default of 5. Linux heeds Java's
 * priorities only if the JVM is started with a policy for it, as sessions are: there a priority is
 * a nice value. Everybody may lower the priority of a thread, but only root may raise it again.
 */
final class ThreadPriority {
  static final int TASK = 4;
  /** A task that is at one record for long. */
  static final int STALLED = Thread.MIN_PRIORITY;

  private static final int NICE_FIELD = 16; // counted from the field after the name
  private static volatile Boolean raisable;

  private ThreadPriority() {}

  static void set(Thread thread, int priority) {
    if (thread.getPriority() != priority) {
      thread.setPriority(priority);
    }
  }

  /**
   * While a task is at one record for long, everything else on the machine goes first. Not if the
   * thread would stay behind for ever: Spark gives it to tasks of other jobs later.
   */
  static void follow(Thread thread, boolean longRecord) {
    if (longRecord && raisable()) {
      set(thread, STALLED);
    } else if (!longRecord && thread.getPriority() == STALLED) {
      set(thread, TASK);
    }
  }

  /** Whether a thread that was lowered can be raised again: tried once, on a thread of its own. */
  static boolean raisable() {
    if (raisable == null) {
      int[] nice = new int[2];
      Thread trial = new Thread(() -> {
        nice[0] = nice();
        Thread.currentThread().setPriority(STALLED);
        Thread.currentThread().setPriority(Thread.NORM_PRIORITY);
        nice[1] = nice();
      });
      trial.start();
      try {
        trial.join();
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return false;
      }
      // The JVM itself may have been started with a nice value.
      raisable = nice[1] <= nice[0];
    }
    return raisable;
  }

  /** The nice value of the calling thread; 0 if the system has none. */
  static int nice() {
    try {
      Path self = Path.of("/proc").resolve(Files.readSymbolicLink(Path.of("/proc/thread-self")));
      String stat = Files.readString(self.resolve("stat"));
      return Integer.parseInt(stat.substring(stat.lastIndexOf(')') + 2).split(" ")[NICE_FIELD]);
    } catch (IOException e) {
      return 0;
    }
  }
}
