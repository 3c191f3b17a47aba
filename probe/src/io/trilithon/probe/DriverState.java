// The probe's state in the driver: tables with generations, incarnations, credits, reports.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * Called by the plugin's endpoint, the scheduler's listener and, through {@link Control}, by the
 * host.
 */
final class DriverState {
  /** Messages of a lost executor come in for seconds; Spark gives no other one its id. */
  private static final int LOST_KEPT = 1000;
  /** An exchange and a reader's longest poll, and some time to spare. */
  static final long END_AHEAD_US = 600_000;

  private final Clock clock;
  private final CreditBoard board = new CreditBoard();
  private final Map<String, ObjectNode> wanted = new TreeMap<>();
  private final Map<String, ObjectNode> effective = new TreeMap<>();
  private final Map<String, List<String>> operators = new HashMap<>();
  private final Map<String, Integer> incarnations = new TreeMap<>();
  /** What an earlier driver of the same host has given is below it. */
  private int leastIncarnation;
  private final Map<String, Located> located = new HashMap<>();
  private final ReceivedReports received = new ReceivedReports();
  private final Totals totals = new Totals(received, incarnations);
  private final Map<String, Integer> ordinals = new HashMap<>();
  private int nextOrdinal;
  /** Counts the changes of tables, incarnations and endings. */
  private long tablesVersion;
  private final Versions changed = new Versions(20_000);
  private final Endings endings = new Endings();
  private final HoldBacks holdBacks = new HoldBacks();
  private final PeekBoard peeks = new PeekBoard();
  /** The executors that were lost since the host last asked, and all that were lost lately. */
  private final ArrayList<String> lost = new ArrayList<>();
  private final Set<String> lostBefore = new LinkedHashSet<>();
  /** Per executor: {"job": {"incarnation": threads}}, as it last told. */
  private final Map<String, JsonNode> threads = new TreeMap<>();
  private boolean threadsChanged;
  private final Map<String, String> halting = new HashMap<>();
  /** The flush time in ms that all executors should have; -1 leaves them as they were started. */
  private long flushMs = -1;
  /** Until then some sender waits for counts. */
  private long hurryUntilUs = Long.MIN_VALUE;
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
    // By the clock, so that it also grows from one driver to the next; which the clock may not do.
    int incarnation = Math.max(incarnations.getOrDefault(job, 0) + 1,
        Math.max(leastIncarnation, (int) (clock.nowUs() / 1_000_000)));
    incarnations.put(job, incarnation);
    located.keySet().removeIf(receiver -> receiver.startsWith(job + "/"));
    totals.forgetEarlier();
    tablesVersion++;
    endings.stopped(job, clock.nowUs(), tablesVersion);
    changed.put(job, tablesVersion);
    return incarnation;
  }

  /** The next incarnations are at least this one. */
  synchronized void leastIncarnation(int least) {
    leastIncarnation = least;
  }

  long nowUs() {
    return clock.nowUs();
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
    totals.forgetEarlier();
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
    ObjectNode answer = Json.object().put("driver_us", clock.nowUs()).put("same_jvm", sameJvm);
    if (!lostBefore.contains(executor)) {
      take(executor, message, answer);
    }
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
    if (message.path("hurry").asBoolean()) {
      hurryUntilUs = clock.nowUs() + 1000 * ExchangePace.LASTS_MS;
    }
    if (clock.nowUs() < hurryUntilUs) {
      answer.put("hurry_ms", ExchangePace.forExecutors(flushTimes.size()));
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

  /** Takes what an executor says, and answers with its credits and what the driver has of it. */
  private void take(String executor, JsonNode message, ObjectNode answer) {
    int ordinal = ordinals.computeIfAbsent(executor, e -> newOrdinal());
    if (message.has("threads")) {
      threads.put(executor, message.path("threads"));
      threadsChanged = true;
    }
    flushTimes.put(executor, message.path("flush_ms").asLong(-1));
    peeks.seen(message.path("seen"));
    board.update(ordinal, message.path("cells"), clock.nowUs());
    long answers = board.answers(ordinal);
    answer.put("ordinal", ordinal).put("whole_report", received.known(executor));
    answer.set("credits", board.answer(ordinal, message.path("answers").asLong(-1) != answers));
    answer.put("answers", answers + 1);
  }

  /** The next number that no executor has. */
  private int newOrdinal() {
    int ordinal = nextOrdinal;
    for (int i = 1; i < Stamp.MAX_EXECUTORS && ordinals.containsValue(ordinal); i++) {
      ordinal = (ordinal + 1) % Stamp.MAX_EXECUTORS;
    }
    nextOrdinal = (ordinal + 1) % Stamp.MAX_EXECUTORS;
    return ordinal;
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
    if (!lostBefore.contains(report.executor)) {
      received.take(report, clock.wallOf(report.timeUs), clock.steps());
    }
  }

  synchronized void executorLost(String executor) {
    if (!lostBefore.add(executor)) {
      return;
    }
    if (lostBefore.size() > LOST_KEPT) {
      lostBefore.remove(lostBefore.iterator().next());
    }
    totals.lost(executor);
    received.forget(executor);
    Integer ordinal = ordinals.remove(executor);
    if (ordinal != null) {
      board.forget(ordinal);
    }
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
    if (!lostBefore.contains(executor)) {
      halting.put(executor, reason);
    }
  }

  /** Cumulative counters per instance, summed over the executors it ran on. */
  synchronized ArrayNode totals() {
    return totals.toJson();
  }

  /** The host does not have a whole report that a later one is based on. */
  synchronized void resendReports() {
    received.resend();
  }

  /**
   * {"reports": [...], "bases": [...], "lost": [executors], "dropped": n} since the last call; if
   * they changed, also "threads": {"executor": {"job": {"incarnation": threads}}}.
   */
  synchronized ObjectNode drainReports() {
    ObjectNode json = Json.object();
    received.drain(json);
    ArrayNode gone = json.putArray("lost");
    lost.forEach(gone::add);
    lost.clear();
    if (threadsChanged) {
      ObjectNode all = json.putObject("threads");
      threads.forEach(all::set);
      threadsChanged = false;
    }
    return json;
  }

  /** How many entries each of the driver's tables has, to see what grows. */
  synchronized ObjectNode sizes() {
    return Json.object().put("tables", effective.size()).put("located", located.size())
        .put("incarnations", incarnations.size()).put("endings", endings.size())
        .put("cells", board.cells()).put("senders", board.senders())
        .put("ordinals", ordinals.size()).put("reporting", received.senders())
        .put("report_characters", received.characters())
        .put("gone", totals.gone()).put("threads", threads.size())
        .put("flush_times", flushTimes.size()).put("halting", halting.size());
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
