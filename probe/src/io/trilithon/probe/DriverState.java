// The probe's state in the driver: tables with generations, incarnations, credits, reports.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.util.RawValue;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Called by the plugin's endpoint, the scheduler's listener and, through {@link Control}, by the
 * host.
 */
final class DriverState {
  /** Ten minutes of one executor's reports, for when the host does not drain them. */
  private static final int MAX_REPORTS = 600;
  /** An exchange and a reader's longest poll, and some time to spare. */
  static final long END_AHEAD_US = 600_000;

  final Totals totals = new Totals();
  private final Clock clock;
  private final CreditBoard board = new CreditBoard();
  private final Map<String, ObjectNode> wanted = new TreeMap<>();
  private final Map<String, ObjectNode> effective = new TreeMap<>();
  private final Map<String, List<String>> operators = new HashMap<>();
  private final Map<String, Integer> incarnations = new TreeMap<>();
  private final Map<String, Located> located = new HashMap<>();
  private final Map<String, Integer> ordinals = new HashMap<>();
  private final ArrayDeque<RawValue> reports = new ArrayDeque<>();
  private long dropped;
  /** Counts the changes of tables, incarnations and endings. */
  private long tablesVersion;
  private final Versions changed = new Versions(20_000);
  private final Endings endings = new Endings();
  private final HoldBacks holdBacks = new HoldBacks();
  private final PeekBoard peeks = new PeekBoard();
  private final ArrayList<String> lost = new ArrayList<>();
  /** Per executor: {"job": {"incarnation": threads}}, as it last told. */
  private final Map<String, JsonNode> threads = new TreeMap<>();
  private boolean threadsChanged;
  private final Map<String, String> halting = new HashMap<>();
  /** The flush time in ms that all executors should have; -1 leaves them as they were started. */
  private long flushMs = -1;
  /** Per executor, the flush time that its writers have when they start. */
  private final Map<String, Long> flushTimes = new TreeMap<>();

  private record Located(String batch, Map<Integer, String> executors) {}

  DriverState(Clock clock) {
    this.clock = clock;
  }

  /**
   * Begins a new incarnation of a job, with counters at 0. Operators are named from source to sink,
   * one per stage.
   */
  synchronized int startJob(String job, List<String> names) {
    operators.put(job, List.copyOf(names));
    // By the clock, so that it also grows from one driver to the next.
    int incarnation = Math.max(incarnations.getOrDefault(job, 0) + 1,
        (int) (clock.nowUs() / 1_000_000));
    incarnations.put(job, incarnation);
    located.keySet().removeIf(receiver -> receiver.startsWith(job + "/"));
    totals.forget(job, incarnation);
    tablesVersion++;
    endings.stopped(job, clock.nowUs(), tablesVersion);
    changed.put(job, tablesVersion);
    return incarnation;
  }

  synchronized void endJob(String job) {
    operators.remove(job);
    tablesVersion++;
    effective.keySet().stream().filter(receiver -> receiver.startsWith(job + "/"))
        .forEach(receiver -> changed.put(receiver, tablesVersion));
    for (Map<String, ?> map : List.of(wanted, effective, located)) {
      map.keySet().removeIf(receiver -> receiver.startsWith(job + "/"));
    }
    incarnations.computeIfPresent(job, (j, n) -> n + 1);
    totals.forget(job, Integer.MAX_VALUE);
    endings.stopped(job, clock.nowUs(), tablesVersion);
    changed.put(job, tablesVersion);
  }

  /**
   * False if a table of the same or a later generation is set already: pushing twice is harmless.
   */
  synchronized boolean setTable(String job, String operator, ObjectNode table) {
    String receiver = EdgeName.receiver(job, operator);
    ObjectNode old = wanted.get(receiver);
    if (!table.path("generation").canConvertToLong()) {
      throw new IllegalArgumentException("a table needs a 'generation', a whole number");
    }
    if (old != null && table.path("generation").asLong() <= old.path("generation").asLong()) {
      return false;
    }
    if (!table.has("credit") && old != null && old.has("credit")) {
      table.set("credit", old.get("credit"));
    }
    if (!Placement.isPlacement(table)) {
      RoutingTable.parse(table);
    }
    wanted.put(receiver, table);
    refresh(receiver);
    return true;
  }

  /** B, the records that may be in flight to one instance; kept over later tables. */
  synchronized void setCredit(String job, String operator, int credit) {
    String receiver = EdgeName.receiver(job, operator);
    ObjectNode table = wanted.get(receiver);
    if (table == null) {
      throw new IllegalStateException(receiver + " has no table yet: set one first");
    }
    wanted.put(receiver, RoutingTable.withCredit(table, credit));
    refresh(receiver);
  }

  /**
   * All tasks of a stage have started: a placement of its operator can be resolved for this batch.
   */
  synchronized void located(String job, int stage, String batch, Map<Integer, String> executors) {
    List<String> names = operators.getOrDefault(job, List.of());
    if (stage < names.size()) {
      String receiver = EdgeName.receiver(job, names.get(stage));
      located.put(receiver, new Located(batch, executors));
      if (wanted.containsKey(receiver) && Placement.isPlacement(wanted.get(receiver))) {
        refresh(receiver);
      }
    }
  }

  private void refresh(String receiver) {
    ObjectNode table = wanted.get(receiver);
    Located where = located.get(receiver);
    if (!Placement.isPlacement(table)) {
      effective.put(receiver, table);
    } else if (where != null) {
      effective.put(receiver, Placement.resolve(table, where.batch, where.executors));
    } else {
      ObjectNode unresolved = table.deepCopy().put("batch", "").put("placed", true);
      unresolved.putArray("weights").add(1);
      unresolved.remove("groups");
      effective.put(receiver, unresolved);
    }
    changed.put(receiver, ++tablesVersion);
  }

  /**
   * Ends a batch of a run on all executors at the same time, when each has had an exchange; with a
   * hold no later batch of the run reads records.
   */
  synchronized void endBatch(String job, String batch, boolean hold) {
    int colon = batch.lastIndexOf(':');
    endings.set(job, batch.substring(0, colon), Long.parseLong(batch.substring(colon + 1)),
        clock.nowUs() + END_AHEAD_US, hold, ++tablesVersion);
  }

  /**
   * Holds the senders of an edge to another part back for so long, from now on: each sends a record
   * per pause, or none if the pause is negative; a pause of 0 lets them go.
   */
  synchronized void holdBack(String job, String cut, long forMs, long pauseUs) {
    long nowUs = clock.nowUs();
    holdBacks.set(EdgeName.receiver(job, cut), nowUs + 1000 * forMs,
        pauseUs < 0 ? HoldBacks.CLOSED : pauseUs, nowUs);
  }

  synchronized String exchange(JsonNode message, boolean sameJvm) {
    String executor = message.path("executor").asText();
    int ordinal = ordinals.computeIfAbsent(executor, e -> ordinals.size() % Stamp.MAX_EXECUTORS);
    if (message.has("threads")) {
      threads.put(executor, message.path("threads"));
      threadsChanged = true;
    }
    flushTimes.put(executor, message.path("flush_ms").asLong(-1));
    peeks.seen(message.path("seen"));
    board.update(ordinal, message.path("cells"), clock.nowUs());
    long answers = board.answers(ordinal);
    ObjectNode answer = Json.object().put("driver_us", clock.nowUs()).put("ordinal", ordinal)
        .put("same_jvm", sameJvm);
    answer.set("credits", board.answer(ordinal, message.path("answers").asLong(-1) != answers));
    answer.put("answers", answers + 1);
    ObjectNode held = holdBacks.toJson(clock.nowUs());
    if (!held.isEmpty()) {
      answer.set("held_back", held);
    }
    ArrayNode watched = peeks.watched(clock.nowUs());
    if (!watched.isEmpty()) {
      answer.set("watched", watched);
    }
    if (flushMs >= 0) {
      answer.put("flush_ms", flushMs);
    }
    if (!sameJvm && halting.containsKey(executor)) {
      answer.put("halt", halting.get(executor));
    }
    if (!sameJvm) {
      answer.set("wall", clock.wallJson());
    }
    long known = message.path("tables_version").asLong();
    if (known != tablesVersion) {
      answer.put("tables_version", tablesVersion);
      changesSince(known < changed.oldest() ? -1 : known, answer);
    }
    return Json.write(answer);
  }

  /** What changed since a version of the tables; everything since -1, which is before the first. */
  private void changesSince(long version, ObjectNode answer) {
    ObjectNode tables = answer.putObject("tables");
    ObjectNode latest = answer.putObject("incarnations");
    if (version < 0) {
      answer.put("all", true);
      effective.forEach(tables::set);
      incarnations.forEach(latest::put);
    } else {
      ArrayNode removed = answer.putArray("removed");
      for (String name : changed.since(version)) {
        if (incarnations.containsKey(name)) {
          latest.put(name, incarnations.get(name));
        } else if (effective.containsKey(name)) {
          tables.set(name, effective.get(name));
        } else {
          removed.add(name);
        }
      }
    }
    answer.set("endings", endings.toJson(version));
  }

  synchronized void report(SentReport report) {
    clock.followWall();
    totals.report(report);
    if (reports.size() == MAX_REPORTS) {
      reports.removeFirst();
      dropped++;
    }
    reports.addLast(new RawValue(report.withWall(clock.wallOf(report.timeUs), clock.steps())));
  }

  synchronized void executorLost(String executor) {
    totals.lost(executor);
    board.forget(ordinals.getOrDefault(executor, -1));
    lost.add(executor);
    threads.remove(executor);
    threadsChanged = true;
    halting.remove(executor);
    flushTimes.remove(executor);
  }

  /** Looks at the records of an edge inside a query, for so long from now on. */
  synchronized void watch(String edge, long forMs) {
    peeks.watch(edge, clock.nowUs() + 1000 * forMs);
  }

  /** The latest records that were seen of an edge, the oldest first. */
  synchronized ArrayNode seen(String edge) {
    return peeks.records(edge);
  }

  /** How long writers of the shuffle gather records, from the next batch of each job on. */
  synchronized void flushTime(long ms) {
    if (ms < 0) {
      throw new IllegalArgumentException("a flush time is 0 ms or more, not " + ms);
    }
    flushMs = ms;
  }

  /** {"executor": ms}: the flush time that each was last told; -1 for none. */
  synchronized ObjectNode flushTimes() {
    ObjectNode json = Json.object();
    flushTimes.forEach(json::put);
    return json;
  }

  /** The threads of a job: {"executor": {"incarnation": threads}}. */
  synchronized ObjectNode threads(String job) {
    ObjectNode json = Json.object();
    threads.forEach((executor, jobs) -> {
      if (jobs.has(job)) {
        json.set(executor, jobs.get(job));
      }
    });
    return json;
  }

  /** An executor's JVM ends at its next exchange; the driver's own never does. */
  synchronized void halt(String executor, String reason) {
    halting.put(executor, reason);
  }

  /**
   * {"reports": [...], "lost": [executors], "dropped": n} since the last call; if they changed, also
   * "threads": {"executor": {"job": {"incarnation": threads}}}.
   */
  synchronized ObjectNode drainReports() {
    ObjectNode json = Json.object().put("dropped", dropped);
    ArrayNode list = json.putArray("reports");
    reports.forEach(list::addRawValue);
    reports.clear();
    ArrayNode gone = json.putArray("lost");
    lost.forEach(gone::add);
    lost.clear();
    if (threadsChanged) {
      ObjectNode all = json.putObject("threads");
      threads.forEach(all::set);
      threadsChanged = false;
    }
    dropped = 0;
    return json;
  }

  /** Per operator: the desired table, the effective one, and the executor of each task. */
  synchronized ObjectNode describe() {
    ObjectNode json = Json.object();
    effective.forEach((receiver, table) -> {
      ObjectNode entry = json.putObject(receiver);
      entry.set("wanted", wanted.get(receiver));
      entry.set("effective", table);
    });
    located.forEach((receiver, where) -> {
      ObjectNode entry = json.has(receiver)
          ? (ObjectNode) json.get(receiver) : json.putObject(receiver);
      ObjectNode tasks = entry.put("batch", where.batch).putObject("tasks");
      where.executors.forEach((index, executor) -> tasks.put(Integer.toString(index), executor));
    });
    return json;
  }
}
