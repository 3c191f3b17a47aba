// Everything that the probes of one JVM share: instances, tables, credits, clock.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

final class Registry {
  /** The functions are static calls, so their registry is static, too. */
  static final Registry JVM = new Registry();

  final Clock clock = new Clock();
  final Endings endings = new Endings();
  final Map<String, CreditCell> cells = new ConcurrentHashMap<>();
  private final Map<InstanceKey, Instance> instances = new ConcurrentHashMap<>();
  private final Map<String, TableRef> tables = new ConcurrentHashMap<>();
  private final CountDownLatch ready = new CountDownLatch(1);
  private volatile int ordinal;
  private volatile Runnable exchangeNow = () -> {};

  Instance instance(InstanceKey key) {
    return instances.computeIfAbsent(key, Instance::new);
  }

  TableRef table(String receiver) {
    return tables.computeIfAbsent(receiver, r -> new TableRef());
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

  /** The executor side is connected: senders may ask for an exchange out of turn. */
  void connect(Runnable exchange) {
    exchangeNow = exchange;
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
    exchangeNow.run();
  }

  /** Removes the counters of older incarnations of a job. */
  void forget(String job, int incarnationsBelow) {
    instances.keySet().removeIf(
        key -> key.job().equals(job) && key.incarnation() < incarnationsBelow);
  }

  ArrayNode instancesJson() {
    ArrayNode list = Json.array();
    instances.values().forEach(instance -> list.add(instance.toJson()));
    return list;
  }
}
