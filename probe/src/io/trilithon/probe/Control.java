// The methods that the host calls through py4j: static, with strings and numbers only.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;

public final class Control {
  private static volatile DriverState state;
  private static volatile TaskLocations locations;

  private Control() {}

  static void connect(DriverState driver, TaskLocations where) {
    state = driver;
    locations = where;
  }

  private static DriverState state() {
    if (state == null) {
      throw new IllegalStateException(
          "no probe in this driver: set spark.plugins=io.trilithon.probe.ProbePlugin");
    }
    return state;
  }

  /**
   * Begins a new incarnation of a job, before its query starts; operators is a JSON list, source
   * first. Returns the incarnation, which the starting thread sets as local property
   * trilithon.incarnation beside trilithon.job.
   */
  public static int startJob(String job, String operators) {
    List<String> names = new ArrayList<>();
    Json.parse(operators).forEach(name -> names.add(name.asText()));
    locations.forget(job);
    return state().startJob(job, names);
  }

  /** The incarnations that begin from now on are at least this one. */
  public static void leastIncarnation(int least) {
    state().leastIncarnation(least);
  }

  /** Driver time, in microseconds: it never steps, and times of reports and batches are in it. */
  public static long nowUs() {
    return state().nowUs();
  }

  public static void endJob(String job) {
    state().endJob(job);
    locations.forget(job);
  }

  /**
   * {"generation", "weights": [...]} or {"generation", "executors": {"id": instances}, "anywhere",
   * "avoid": [tasks]}, with "credit", "groups".
   */
  public static boolean setTable(String job, String operator, String table) {
    JsonNode json = Json.parse(table);
    if (!json.isObject()) {
      throw new IllegalArgumentException(
          "a table must be a JSON object, not " + json.getNodeType());
    }
    return state().setTable(job, operator, (ObjectNode) json);
  }

  public static void setCredit(String job, String operator, int credit) {
    state().setCredit(job, operator, credit);
  }

  /**
   * {"dropped": n, "reports": [...], "bases": [...], "lost": [executors]} since the last call; if
   * they changed, also "threads": {"executor": {"job": {"incarnation": threads}}}. A report with a
   * "base" has the rows that differ from that whole report, which came before or is in "bases".
   */
  public static String drainReports() {
    return Json.write(state().drainReports());
  }

  /** The host misses a whole report: the next "bases" have all that it needs. */
  public static void resendReports() {
    state().resendReports();
  }

  /** Cumulative counters per instance, summed over the executors it ran on. */
  public static String totals() {
    return Json.write(state().totals());
  }

  /**
   * {"driver": {"table": entries}, "executor": {...}, "threads": {"pool": threads}}: what is kept
   * in this JVM, to see what grows.
   */
  public static String sizes() {
    ObjectNode json = Json.object();
    json.set("driver", state().sizes().put("batches", locations.batches().size())
        .put("stages", locations.stages()));
    json.set("executor", Registry.JVM.sizes());
    ObjectNode pools = json.putObject("threads");
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      String pool = poolOf(thread.getName());
      pools.put(pool, pools.path(pool).asInt() + 1);
    }
    return Json.write(json);
  }

  /** Threads of a pool differ by numbers, and by the ids of queries and of tasks. */
  static String poolOf(String thread) {
    return thread.replaceAll("\\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\\b", "#")
        .replaceAll("[0-9]+(\\.[0-9]+)*", "#");
  }

  /** Per operator: the desired table, the effective one, and the executor of each task. */
  public static String tables() {
    return Json.write(state().describe());
  }

  /** The threads that run tasks of the job: {"executor": {"incarnation": threads}}. */
  public static String threads(String job) {
    return Json.write(state().threads(job));
  }

  /** Where the threads of the job are that run in this JVM. */
  public static String stacks(String job) {
    return Registry.JVM.stacks(job);
  }

  /** Ends the JVM of an executor; the cluster manager starts another. Not that of the driver. */
  public static void halt(String executor, String reason) {
    state().halt(executor, reason);
  }

  /** Tasks of each stage of the job's running batch, to be compared with what was compiled. */
  public static String tasksPerStage(String job) {
    return list(locations.tasksPerStage(job));
  }

  /** How many tasks of each stage of the job's running batch have started. */
  public static String tasksStarted(String job) {
    return list(locations.tasksStarted(job));
  }

  private static String list(List<Integer> numbers) {
    ArrayNode list = Json.array();
    numbers.forEach(list::add);
    return Json.write(list);
  }

  /** The batch that the job's tasks run in, or "" before its first. */
  public static String batch(String job) {
    return locations.batch(job);
  }

  /** Per job, the batch that its tasks run in and its times; not before a job's first batch. */
  public static String batches() {
    return Json.write(locations.batches());
  }

  /**
   * Holds the senders of an edge that leads to another part of the job back, for so many milliseconds
   * unless it is repeated: each sends a record per pause, or none if the pause is negative; a
   * pause of 0 lets them go.
   */
  public static void holdBack(String job, String cut, long forMs, long pauseUs) {
    state().holdBack(job, cut, forMs, pauseUs);
  }

  /** Looks at the records of an edge inside a query, "job/from>to", for so many milliseconds. */
  public static void watch(String edge, long forMs) {
    state().watch(edge, forMs);
  }

  /** The latest records of an edge that is watched: [{"instance", "time_s", "value"}]. */
  public static String seen(String edge) {
    return Json.write(state().seen(edge));
  }

  /**
   * How long writers of the shuffle gather records, in ms: for all jobs, from the next batch of each
   * on.
   */
  public static void flushTime(long ms) {
    state().flushTime(ms);
  }

  /** The flush time that each executor has set: {"executor": ms}, -1 for none. */
  public static String flushTimes() {
    return Json.write(state().flushTimes());
  }

  /**
   * Ends a batch of a job early; its other batches and other jobs go on. With a hold no later batch of
   * that run reads a record.
   */
  public static void endBatch(String job, String batch, boolean hold) {
    state().endBatch(job, batch, hold);
  }
}
