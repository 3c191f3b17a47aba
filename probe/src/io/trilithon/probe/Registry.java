// Everything that the probes of one JVM share: instances, tables, credits, clock.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.LongConsumer;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.stream.Collectors;

class Registry {
  /** The functions are static calls, so their registry is static, too. */
  static final Registry JVM = new Registry();

  final Clock clock = new Clock();
  final Endings endings = new Endings();
  final HoldBacks holdBacks = new HoldBacks();
  final Peeks peeks = new Peeks();
  final ExchangePace pace = new ExchangePace();
  /** The tasks of jobs whose threads run in this JVM. */
  final Set<TaskProbe> tasks = ConcurrentHashMap.newKeySet();
  final Map<String, CreditCell> cells = new ConcurrentHashMap<>();
  private final Map<InstanceKey, Instance> instances = new ConcurrentHashMap<>();
  private final Map<ReaderProgress.Key, ReaderProgress> readers = new ConcurrentHashMap<>();
  private final Map<ReaderProgress.Key, Object> memories = new ConcurrentHashMap<>();
  private final Map<InstanceKey, BroadcastTable> broadcasts = new ConcurrentHashMap<>();
  private final Map<String, TableRef> tables = new ConcurrentHashMap<>();
  /** The sequence of the last whole report of this executor that the driver has; 0 without one. */
  volatile long wholeReport;
  private final CountDownLatch ready = new CountDownLatch(1);
  private volatile int ordinal;
  private volatile LongConsumer exchangeSince;
  private volatile long askedNs = System.nanoTime();

  Instance instance(InstanceKey key) {
    return instances.computeIfAbsent(key, Instance::new);
  }

  ReaderProgress reader(ReaderProgress.Key key) {
    return readers.computeIfAbsent(key, k -> new ReaderProgress(k, clock));
  }

  /** What a reader keeps from batch to batch while its job's incarnation lasts. */
  Object memory(ReaderProgress.Key key, Supplier<?> make) {
    return memories.computeIfAbsent(key, k -> make.get());
  }

  /** What was broadcast to an instance while its tasks ran here. */
  BroadcastTable broadcast(InstanceKey key) {
    return broadcasts.computeIfAbsent(key, k -> new BroadcastTable(BroadcastTable.MOST_KEYS));
  }

  TableRef table(String receiver) {
    return tables.computeIfAbsent(receiver, r -> new TableRef());
  }

  /** Forgets the tables of other operators: their jobs have ended. */
  void keepTables(Predicate<String> kept) {
    tables.keySet().removeIf(name -> !kept.test(name));
  }

  int tables() {
    return tables.size();
  }

  /** The cell, retained for a task until {@link #release}. */
  CreditCell cell(String name) {
    return cells.compute(name, (n, old) -> {
      CreditCell cell = old == null ? new CreditCell(n) : old;
      cell.use();
      return cell;
    });
  }

  void release(CreditCell cell) {
    cells.computeIfPresent(cell.name, (n, c) -> c.release() ? null : c);
  }

  int ordinal() {
    return ordinal;
  }

  /**
   * The executor side is connected: tasks may ask for an exchange out of turn. It takes a time and
   * does nothing if an exchange began after that.
   */
  void connect(LongConsumer exchange) {
    exchangeSince = exchange;
  }

  /** What the driver answered to a question asked at that time is known. */
  void answered(long questionNs) {
    askedNs = questionNs;
  }

  /** Whether the driver's state of that time or later is known; asks the driver if it is not. */
  boolean currentSince(long ns) {
    LongConsumer exchange = exchangeSince;
    if (exchange != null && askedNs - ns < 0) {
      exchange.accept(ns);
    }
    return exchange == null || askedNs - ns >= 0;
  }

  /** The first answer of the driver is in: tables are known. */
  void ready(int executorOrdinal) {
    ordinal = executorOrdinal;
    ready.countDown();
  }

  /**
   * No record is routed before the driver's tables are known; without a plugin (unit tests) this
   * times out soon.
   */
  void awaitReady() {
    try {
      ready.await(5, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  void exchangeNow() {
    currentSince(System.nanoTime());
  }

  /** Removes the counters of older incarnations of a job. */
  void forget(String job, int incarnationsBelow) {
    instances.keySet().removeIf(
        key -> key.job().equals(job) && key.incarnation() < incarnationsBelow);
    broadcasts.keySet().removeIf(
        key -> key.job().equals(job) && key.incarnation() < incarnationsBelow);
    readers.keySet().removeIf(
        key -> key.job().equals(job) && key.incarnation() < incarnationsBelow);
    memories.keySet().removeIf(
        key -> key.job().equals(job) && key.incarnation() < incarnationsBelow);
  }

  /** A row per reader, as it goes into reports. */
  Map<ReaderProgress.Key, ObjectNode> readerRows() {
    Map<ReaderProgress.Key, ObjectNode> rows = new LinkedHashMap<>();
    readers.forEach((key, reader) -> rows.put(key, reader.toJson()));
    return rows;
  }

  /** How many entries each table of this JVM has, to see what grows. */
  ObjectNode sizes() {
    return Json.object().put("instances", instances.size()).put("readers", readers.size())
        .put("memories", memories.size()).put("broadcasts", broadcasts.size())
        .put("tables", tables.size()).put("cells", cells.size()).put("tasks", tasks.size())
        .put("endings", endings.size());
  }

  /** The number of threads of each job and incarnation: {"job": {"incarnation": threads}}. */
  ObjectNode threadsJson() {
    ObjectNode json = Json.object();
    for (TaskProbe task : tasks) {
      ObjectNode lives = json.has(task.job())
          ? (ObjectNode) json.get(task.job()) : json.putObject(task.job());
      String life = Integer.toString(task.incarnation());
      lives.put(life, lives.path(life).asInt() + 1);
    }
    return json;
  }

  /** Where the threads of a job are in this JVM. */
  String stacks(String job) {
    return tasks.stream().filter(task -> task.job().equals(job)).map(TaskProbe::stack)
        .collect(Collectors.joining("\n"));
  }

  /** A row per instance, as it goes into reports. */
  Map<InstanceKey, ObjectNode> instanceRows() {
    Map<InstanceKey, ObjectNode> rows = new LinkedHashMap<>();
    instances.forEach((key, instance) -> rows.put(key, instance.toJson()));
    return rows;
  }
}
