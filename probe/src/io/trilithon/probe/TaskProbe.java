// The probe of the running Spark task: its batch, its instances, its thread's CPU time.
package io.trilithon.probe;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.TaskContext;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * One per task, found by thread. Names are literals, the same object for each record: the last
 * lookup is cached.
 */
final class TaskProbe {
  static final String JOB = "trilithon.job";
  static final String INCARNATION = "trilithon.incarnation";
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
  private static final ThreadLocal<TaskProbe> CURRENT = new ThreadLocal<>();

  private final Registry registry;
  private final TaskContext task;
  private final int index;
  private final int incarnation;
  private final String job;
  private final String batch;
  private final Thread thread = Thread.currentThread();
  private final long startCpuNs = THREADS.getCurrentThreadCpuTime();
  private final List<Instance> held = new ArrayList<>();
  private final Budget budget = new Budget();
  private volatile Instance owner;
  private final List<CreditCell> cells = new ArrayList<>();
  private final Map<UTF8String, TakeProbe> takes = new HashMap<>();
  private final Map<UTF8String, RouteProbe> routes = new HashMap<>();
  private final Map<UTF8String, LeaveProbe> leaves = new HashMap<>();
  private final Map<UTF8String, Instance> marks = new HashMap<>();
  private UTF8String lastTakeName;
  private TakeProbe lastTake;
  private UTF8String lastRouteName;
  private RouteProbe lastRoute;
  private UTF8String lastMarkName;
  private Instance lastMark;

  private TaskProbe(Registry registry, TaskContext task) {
    this.registry = registry;
    this.task = task;
    index = task == null ? 0 : task.partitionId();
    job = task == null ? null : task.getLocalProperty(JOB);
    String property = task == null ? null : task.getLocalProperty(INCARNATION);
    incarnation = property == null ? 0 : Integer.parseInt(property);
    batch = task == null ? "" : batch(task.getLocalProperty("spark.jobGroup.id"),
        task.getLocalProperty("streaming.sql.batchId"));
  }

  /** A batch of a run of a query: Spark gives the run's id as job group. */
  static String batch(String run, String batchId) {
    return run + ":" + batchId;
  }

  static TaskProbe current() {
    TaskProbe probe = CURRENT.get();
    if (probe == null) {
      probe = new TaskProbe(Registry.JVM, TaskContext.get());
      CURRENT.set(probe);
    }
    return probe;
  }

  static void begin() {
    TaskProbe probe = new TaskProbe(Registry.JVM, TaskContext.get());
    CURRENT.set(probe);
    if (probe.job != null) {
      ThreadPriority.set(probe.thread, ThreadPriority.TASK);
      probe.registry.tasks.add(probe);
    }
  }

  BatchSignal signal() {
    int colon = batch.lastIndexOf(':');
    return job == null ? new BatchSignal(registry, task, null, 0, "", 0)
        : new BatchSignal(registry, task, job, incarnation, batch.substring(0, colon),
            Long.parseLong(batch.substring(colon + 1)));
  }

  /** The task is over: closes its last record, adds its CPU time, releases its credits. */
  static void end() {
    TaskProbe probe = CURRENT.get();
    CURRENT.remove();
    if (probe == null) {
      return;
    }
    probe.registry.tasks.remove(probe);
    long cpuNs = THREADS.getCurrentThreadCpuTime() - probe.startCpuNs;
    for (Instance instance : probe.held) {
      instance.letGo(probe, instance == probe.owner ? cpuNs : 0);
    }
    // Spark's pool keeps the thread, also for work that is nobody's record.
    ThreadPriority.follow(probe.thread, false);
    probe.cells.forEach(probe.registry::release);
  }

  String job() {
    return job;
  }

  int incarnation() {
    return incarnation;
  }

  /** Where the task's thread is, a line per frame. */
  String stack() {
    return thread.getName() + Arrays.stream(thread.getStackTrace()).map(frame -> "\n  " + frame)
        .collect(Collectors.joining());
  }

  /** Whether the task is at one record for long: then everything else on the machine goes first. */
  void longRecord(boolean isLong) {
    ThreadPriority.follow(thread, isLong);
  }

  /** CPU time of the running thread; if a stage holds several operators it goes to the first. */
  long cpuNsOf(Instance instance) {
    long now = owner != instance ? -1 : THREADS.getThreadCpuTime(thread.getId());
    return now < 0 ? 0 : now - startCpuNs;
  }

  /** What the functions may still make of the record in work. */
  static Budget budget() {
    return current().budget;
  }

  TakeProbe take(UTF8String name) {
    budget.reset();
    Failures.reset();
    if (name != lastTakeName) {
      lastTake = takes.computeIfAbsent(name.clone(), this::newTake);
      lastTakeName = name;
    }
    return lastTake;
  }

  RouteProbe route(UTF8String name) {
    if (name != lastRouteName) {
      lastRoute = routes.computeIfAbsent(name.clone(), this::newRoute);
      lastRouteName = name;
    }
    return lastRoute;
  }

  /** A task has one per edge out of its part; with several, names alternate. */
  LeaveProbe leave(UTF8String name) {
    LeaveProbe probe = leaves.get(name);
    if (probe == null) {
      EdgeName edge = EdgeName.parse(name.toString());
      probe = new LeaveProbe(registry, edge, hold(edge.job(), edge.from()), task, signal());
      leaves.put(name.clone(), probe);
    }
    return probe;
  }

  /** The instance inside which something is marked: named by job/operator. */
  Instance mark(UTF8String name) {
    if (name != lastMarkName) {
      lastMark = marks.computeIfAbsent(name.clone(), n -> {
        EdgeName edge = EdgeName.parse(n.toString());
        return hold(edge.job(), edge.to());
      });
      lastMarkName = name;
    }
    return lastMark;
  }

  private TakeProbe newTake(UTF8String name) {
    EdgeName edge = EdgeName.parse(name.toString());
    Instance receiver = hold(edge.job(), edge.to());
    return new TakeProbe(registry, edge, receiver, edge.from().isEmpty() ? null : cell(edge));
  }

  private RouteProbe newRoute(UTF8String name) {
    EdgeName edge = EdgeName.parse(name.toString());
    return new RouteProbe(registry, edge, hold(edge.job(), edge.from()), cell(edge), batch, task);
  }

  private CreditCell cell(EdgeName edge) {
    CreditCell cell = registry.cell(CreditCell.name(edge.receiver(), batch));
    cells.add(cell);
    return cell;
  }

  private Instance hold(String job, String operator) {
    Instance instance = registry.instance(new InstanceKey(job, operator, index, incarnation));
    if (!held.contains(instance)) {
      held.add(instance);
      owner = owner == null ? instance : owner;
      instance.hold(this);
    }
    return instance;
  }
}
