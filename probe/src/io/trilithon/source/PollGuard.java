// Ends polls that last longer than they were told to.
package io.trilithon.source;

import java.lang.reflect.Field;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import scala.Option;

/**
 * Kafka's consumer counts the time of a poll by the wall clock. When that is set back, a poll that is
 * under way lasts for as long as the clock jumped, unless a record comes: a reader of an empty
 * partition would keep its batch open for an hour. A thread of this JVM looks after all polls by the
 * steady clock and wakes the consumer of one that is overdue.
 */
final class PollGuard {
  /** A busy machine delays polls, too. */
  static final long LATE_MS = 1000;
  private static final long LOOK_MS = 250;
  private static final String WOKEN = "org.apache.kafka.common.errors.WakeupException";
  private static final String CONSUMER =
      "org$apache$spark$sql$kafka010$KafkaBatchPartitionReader$$consumer";
  private static final Set<PollGuard> GUARDS = ConcurrentHashMap.newKeySet();
  private static Thread watcher;

  private final Object connector;
  /** When the poll that is under way should have ended; 0 between two polls. */
  private volatile long dueNs;

  PollGuard(Object connector) {
    this.connector = connector;
    GUARDS.add(this);
    watch();
  }

  void begins(long timeoutMs) {
    dueNs = (System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs + LATE_MS)) | 1;
  }

  void ends() {
    dueNs = 0;
  }

  void close() {
    GUARDS.remove(this);
  }

  /** Whether a poll was woken: it found nothing, and the next one goes on where it was. */
  static boolean woke(RuntimeException failure) {
    return failure.getClass().getName().equals(WOKEN);
  }

  private static synchronized void watch() {
    if (watcher == null) {
      watcher = new Thread(PollGuard::run, "trilithon-polls");
      watcher.setDaemon(true);
      watcher.start();
    }
  }

  private static void run() {
    while (true) {
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(LOOK_MS));
      for (PollGuard guard : GUARDS) {
        long due = guard.dueNs;
        if (due != 0 && System.nanoTime() - due > 0) {
          guard.wake();
        }
      }
    }
  }

  /** The connector's reader hides its consumer, and gets it from a pool when it polls first. */
  private void wake() {
    try {
      Object data = connector.getClass().getMethod(CONSUMER).invoke(connector);
      Option<?> held = (Option<?>) data.getClass().getMethod("_consumer").invoke(data);
      if (held.isDefined()) {
        Field field = held.get().getClass().getDeclaredField("consumer");
        field.setAccessible(true);
        Object consumer = field.get(held.get());
        consumer.getClass().getMethod("wakeup").invoke(consumer);
      }
    } catch (ReflectiveOperationException | RuntimeException e) {
      // Another version of the connector: its polls last as long as they do.
      GUARDS.remove(this);
    }
  }
}
