// The plugin in an executor: an exchange every 100 ms or sooner, a report every second, hooks at the
// start and end of tasks.
package io.trilithon.probe;

import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskFailedReason;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

final class ExecutorSide implements ExecutorPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(ExecutorSide.class);
  private static final int FIRST_TRIES = 20;
  /** How long a writer of the streaming shuffle gathers records; it reads this when it starts. */
  private static final String FLUSH_TIME = "spark.shuffle.streaming.networkBufferMaxWaitTimeMs";
  /** The exit code of an executor that the driver replaces; not one that Spark gives a meaning. */
  private static final int REPLACED = 75;
  /** How the names of Spark's threads that run tasks begin. */
  private static final String TASK_THREAD = "Executor task launch worker";

  private PluginContext context;
  private ScheduledExecutorService timer;
  private Exchange exchange;
  private Report report;

  @Override
  public void init(PluginContext pluginContext, Map<String, String> settings) {
    context = pluginContext;
    long exchangeMs = Long.parseLong(settings.get(DriverSide.EXCHANGE_MS));
    long reportMs = Long.parseLong(settings.get(DriverSide.REPORT_MS));
    Gate.stuckAfterMs(Long.parseLong(settings.get(DriverSide.STUCK_MS)));
    Registry registry = Registry.JVM;
    String executor = context.executorID();
    timer = Executors.newScheduledThreadPool(2, ExecutorSide::daemon);
    exchange = new Exchange(registry, executor, this::ask, ExecutorSide::halt,
        ExecutorSide::setFlushTime);
    report = new Report(registry, executor);
    registry.connect(
        since -> guarded("exchange", () -> exchange.runUnlessSince(since)).run());
    firstExchange();
    long lookMs = Math.min(exchangeMs, ExchangePace.FASTEST_MS / 2);
    timer.scheduleWithFixedDelay(guarded("exchange", () -> exchange.runIfDue(exchangeMs)), lookMs,
        lookMs, TimeUnit.MILLISECONDS);
    scheduleReport(reportMs);
  }

  /**
   * All executors report at the same times by the driver's clock, so that their counts can be
   * compared.
   */
  private void scheduleReport(long periodMs) {
    long periodUs = periodMs * 1000;
    long waitUs = periodUs - Math.floorMod(Registry.JVM.clock.nowUs(), periodUs);
    timer.schedule(() -> {
      guarded("report", this::sendReport).run();
      scheduleReport(periodMs);
    }, waitUs, TimeUnit.MICROSECONDS);
  }

  /** Before the first task: a new executor must not route a record by a table it does not have. */
  private void firstExchange() {
    for (int i = 1; i <= FIRST_TRIES; i++) {
      try {
        exchange.run();
        return;
      } catch (RuntimeException e) {
        LOG.warn("first exchange with the driver failed, attempt {} of {}", i, FIRST_TRIES, e);
      }
      try {
        Thread.sleep(50);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return;
      }
    }
  }

  private String ask(String message) {
    try {
      return (String) context.ask(message);
    } catch (Exception e) {
      throw new IllegalStateException("the driver did not answer", e);
    }
  }

  private void sendReport() {
    if (SparkEnv.get().blockManager().blockManagerId() == null) {
      return; // the block manager is not up yet: nothing has run
    }
    try {
      // PluginContext.hostname() throws on real executors
      context.send(report.next(SparkEnv.get().blockManager().blockManagerId().host()));
    } catch (java.io.IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  /** A scheduled task that throws would silently never run again. */
  static Runnable guarded(String what, Runnable work) {
    return () -> {
      try {
        work.run();
      } catch (Throwable e) {
        LOG.warn("{} failed, will retry", what, e);
      }
    };
  }

  /** A thread that cannot be ended holds this JVM: the cluster manager starts another one. */
  private static void halt(String reason) {
    LOG.error("this executor ends, to be replaced: {}", reason);
    Thread.getAllStackTraces().forEach((thread, frames) -> {
      if (thread.getName().startsWith(TASK_THREAD)) {
        LOG.error("{}\n  {}", thread.getName(),
            Arrays.stream(frames).map(String::valueOf).collect(Collectors.joining("\n  ")));
      }
    });
    Runtime.getRuntime().halt(REPLACED);
  }

  private static void setFlushTime(long ms) {
    SparkEnv.get().conf().set(FLUSH_TIME, Long.toString(ms));
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work, "trilithon-probe");
    thread.setDaemon(true);
    return thread;
  }

  @Override
  public void onTaskStart() {
    TaskProbe.begin();
  }

  @Override
  public void onTaskSucceeded() {
    TaskProbe.end();
  }

  @Override
  public void onTaskFailed(TaskFailedReason reason) {
    TaskProbe.end();
  }

  @Override
  public void shutdown() {
    if (timer != null) {
      timer.shutdownNow();
    }
  }
}
