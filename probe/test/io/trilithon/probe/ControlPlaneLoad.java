// A driver with many fake executors and jobs: prints the CPU time that the driver's part takes.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * {@code main(executors, jobs, seconds, file, busy)}: each job has a source and two operators of
 * two instances, on executors of its own choice. In so many percent of the jobs every instance takes a
 * record between two exchanges; the threads of the others only wait, which takes CPU time, too.
 * Executors exchange ten times a second and report once; only what the driver does with it is
 * timed. What the host drains goes to the file, a line per second, whole reports first.
 */
final class ControlPlaneLoad {
  private static final int INSTANCES = 2;
  private static final int EXCHANGES_PER_S = 10;
  /** The CPU time of a thread that waits for records, per second. */
  private static final long IDLE_CPU_NS = 2_900_000;
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  private final DriverState driver = new DriverState(new Clock());
  private final List<Registry> registries = new ArrayList<>();
  private final List<Exchange> exchanges = new ArrayList<>();
  private final List<Report> reports = new ArrayList<>();
  private final List<Runnable> work = new ArrayList<>();
  private final List<Instance> idle = new ArrayList<>();
  private final int jobs;
  private long driverNs;
  private long messageBytes;
  private long answerBytes;
  private long reportBytes;

  private ControlPlaneLoad(int executors, int jobs, int busyPercent) {
    this.jobs = jobs;
    for (int e = 0; e < executors; e++) {
      Registry registry = new Registry();
      registries.add(registry);
      exchanges.add(new Exchange(registry, Integer.toString(e), this::exchange, reason -> { },
          ms -> { }));
      reports.add(new Report(registry, Integer.toString(e)));
    }
    exchanges.forEach(Exchange::run);
    for (int j = 0; j < jobs; j++) {
      start("t/j" + j, j, j % 100 < busyPercent);
    }
  }

  private void start(String job, int number, boolean busy) {
    int incarnation = driver.startJob(job, List.of("in", "a", "b"));
    String[] operators = {"in", "a", "b"};
    for (int o = 1; o < operators.length; o++) {
      driver.setTable(job, operators[o],
          (ObjectNode) Json.parse("{\"generation\":1,\"weights\":[1,1,0,0,0,0,0,0]}"));
    }
    for (int o = 0; o < operators.length; o++) {
      for (int i = 0; i < INSTANCES; i++) {
        Registry here = at(number, o, i);
        Instance instance = here.instance(new InstanceKey(job, operators[o], i, incarnation));
        List<Runnable> todo = new ArrayList<>();
        if (o > 0) {
          String cell = CreditCell.name(EdgeName.receiver(job, operators[o]), "r:0");
          Registry sender = at(number, o - 1, i);
          CreditCell sending = sender.cell(cell);
          CreditCell taking = here.cell(cell);
          Inbound edge = instance.inbound(operators[o - 1]);
          int index = i;
          todo.add(() -> {
            sending.reserve(index, sender.ordinal(), 20, sender.clock.nowUs());
            taking.took(sender.ordinal(), index);
            take(instance, edge, here);
          });
        } else {
          Inbound edge = instance.inbound("");
          todo.add(() -> take(instance, edge, here));
        }
        if (o < operators.length - 1) {
          Outbound out = instance.outbound(operators[o + 1]);
          int index = i;
          todo.add(() -> instance.sent(out, index));
        } else {
          LogHistogram histogram = instance.endToEnd();
          todo.add(() -> instance.delivered(histogram, System.nanoTime(), 12.5));
        }
        todo.forEach(Runnable::run);
        if (busy) {
          work.addAll(todo);
        } else {
          idle.add(instance);
        }
      }
    }
  }

  private Registry at(int job, int operator, int instance) {
    return registries.get((job * 7 + operator * INSTANCES + instance) % registries.size());
  }

  private static void take(Instance instance, Inbound edge, Registry here) {
    long nowUs = here.clock.nowUs();
    instance.take(edge, nowUs - 5_000, nowUs, System.nanoTime(), nowUs - 10_000);
    instance.mark(System.nanoTime());
  }

  private String exchange(String message) {
    long began = THREADS.getCurrentThreadCpuTime();
    String answer = driver.exchange(Json.parse(message), false);
    driverNs += THREADS.getCurrentThreadCpuTime() - began;
    messageBytes += message.length();
    answerBytes += answer.length();
    return answer;
  }

  /** One second; returns what the host drains after it. */
  private String second(int number) {
    for (int i = 0; i < EXCHANGES_PER_S; i++) {
      work.forEach(Runnable::run);
      exchanges.forEach(Exchange::run);
    }
    idle.forEach(instance -> instance.letGo(null, IDLE_CPU_NS));
    // One job in a hundred gets another table, and one in three hundred ends its batch.
    for (int j = number % 100; j < jobs; j += 100) {
      driver.setTable("t/j" + j, "a", (ObjectNode) Json.parse(
          "{\"generation\":" + (number + 2) + ",\"weights\":[1,1,0,0,0,0,0,0]}"));
    }
    for (int j = number % 300; j < jobs; j += 300) {
      driver.endBatch("t/j" + j, "run" + j + ":" + number, false);
    }
    for (Report report : reports) {
      String message = report.next("host");
      reportBytes += message.length();
      long began = THREADS.getCurrentThreadCpuTime();
      driver.report(SentReport.of(message));
      driverNs += THREADS.getCurrentThreadCpuTime() - began;
    }
    long began = THREADS.getCurrentThreadCpuTime();
    String drained = Json.write(driver.drainReports());
    driverNs += THREADS.getCurrentThreadCpuTime() - began;
    return drained;
  }

  public static void main(String[] arguments) throws java.io.IOException {
    int executors = Integer.parseInt(arguments[0]);
    int seconds = Integer.parseInt(arguments[2]);
    ControlPlaneLoad load = new ControlPlaneLoad(executors, Integer.parseInt(arguments[1]),
        Integer.parseInt(arguments[4]));
    for (int s = 0; s < seconds; s++) {
      load.second(s); // the JVM compiles what it runs
    }
    load.driverNs = load.messageBytes = load.answerBytes = load.reportBytes = 0;
    load.driver.resendReports();
    List<String> drained = new ArrayList<>();
    for (int s = 0; s < seconds; s++) {
      drained.add(load.second(seconds + s));
    }
    Files.write(Path.of(arguments[3]), drained);
    System.out.println(Json.write(Json.object()
        .put("driver_cores", load.driverNs / 1e9 / seconds)
        .put("exchange_bytes_per_s", load.messageBytes / seconds)
        .put("answer_bytes_per_s", load.answerBytes / seconds)
        .put("report_bytes_per_s", load.reportBytes / seconds)
        .put("drained_bytes_per_s", drained.get(seconds - 1).length())));
  }
}
