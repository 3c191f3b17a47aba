// The executor's part of the 100-ms exchange with the driver: sends credits, receives tables,
// endings and credits.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.function.Consumer;
import java.util.function.LongConsumer;
import java.util.function.UnaryOperator;

/** Messages are JSON text: Spark's RPC class loader would not find a class of the probe. */
final class Exchange {
  private final Registry registry;
  private final String executor;
  private final UnaryOperator<String> driver;
  private final Consumer<String> halt;
  private final LongConsumer flushTime;
  /** The flush time of this JVM in ms, as the driver last said; -1 if it never did. */
  private long flushMs = -1;
  private long tablesVersion = -1;
  private long answers = -1;
  private final CellReports cells;
  private long askedNs = System.nanoTime();
  private long triedNs = System.nanoTime();
  private JsonNode threadsSent = Json.object();

  /**
   * {@code halt} ends this JVM; the driver asks for it with a reason. {@code flushTime} sets how long
   * shuffle writers that start from now on gather records, in ms.
   */
  Exchange(Registry registry, String executor, UnaryOperator<String> driver,
      Consumer<String> halt, LongConsumer flushTime) {
    this.registry = registry;
    this.cells = new CellReports(registry);
    this.executor = executor;
    this.driver = driver;
    this.halt = halt;
    this.flushTime = flushTime;
  }

  /** One round trip, unless one began after that time: tasks call this out of turn. */
  synchronized void runUnlessSince(long ns) {
    if (askedNs - ns < 0) {
      run();
    }
  }

  /** One round trip, if one is due: so long after the last one, or sooner while a sender waits. */
  synchronized void runIfDue(long usualMs) {
    long nowNs = System.nanoTime();
    if (registry.pace.due(nowNs - triedNs, usualMs, nowNs)) {
      run();
    }
  }

  /** One round trip. */
  synchronized void run() {
    long startNs = System.nanoTime();
    triedNs = startNs;
    ObjectNode message = Json.object().put("kind", "exchange").put("executor", executor)
        .put("tables_version", tablesVersion).put("answers", answers)
        .put("flush_ms", flushMs);
    if (registry.pace.hurried(startNs)) {
      message.put("hurry", true);
    }
    message.set("cells", cells.changed());
    JsonNode threads = registry.threadsJson();
    if (!threads.equals(threadsSent)) {
      message.set("threads", threads);
    }
    ObjectNode seen = registry.peeks.drain();
    if (!seen.isEmpty()) {
      message.set("seen", seen);
    }
    long askedUs = registry.clock.localUs();
    JsonNode answer = Json.parse(driver.apply(Json.write(message)));
    long answeredUs = registry.clock.localUs();
    if (!answer.path("same_jvm").asBoolean()) {
      registry.clock.sample(askedUs, answeredUs, answer.path("driver_us").asLong());
      registry.clock.learnWall(answer.path("wall"));
    }
    threadsSent = threads;
    registry.holdBacks.learn(answer.path("held_back"));
    registry.peeks.learn(answer.path("watched"));
    cells.delivered();
    registry.pace.granted(answer.path("hurry_ms").asLong());
    setFlushTime(answer.path("flush_ms").asLong(flushMs));
    learn(answer);
    answers = answer.path("answers").asLong();
    askedNs = startNs;
    registry.answered(startNs);
    if (answer.has("halt")) {
      halt.accept(answer.path("halt").asText());
    }
    registry.cells.values()
        .forEach(cell -> cell.measure(registry.ordinal(), registry.clock.localUs()));
  }

  private void setFlushTime(long ms) {
    if (ms != flushMs) {
      flushTime.accept(ms);
      flushMs = ms;
    }
  }

  private void learn(JsonNode answer) {
    if (answer.has("tables")) {
      boolean all = answer.path("all").asBoolean();
      if (all) {
        registry.keepTables(name -> answer.path("tables").has(name));
      }
      answer.path("removed").forEach(
          name -> registry.keepTables(other -> !other.equals(name.asText())));
      answer.path("tables").properties().forEach(
          e -> registry.table(e.getKey()).set(e.getValue()));
      answer.path("incarnations").properties()
          .forEach(e -> registry.forget(e.getKey(), e.getValue().asInt()));
      registry.endings.learn(answer.path("endings"), all, registry.clock.nowUs());
      tablesVersion = answer.path("tables_version").asLong();
    }
    for (JsonNode credit : answer.path("credits")) {
      CreditCell cell = registry.cells.get(credit.path("cell").asText());
      if (cell != null) {
        cell.divideBetween(credit.path("senders").asInt());
        credit.path("taken").properties().forEach(e -> cell.learn(
            Integer.parseInt(e.getKey()), e.getValue().get(0).asLong(),
            e.getValue().get(1).asLong(), registry.clock.nowUs()));
      }
    }
    // A driver that calls this executor lost says neither.
    registry.wholeReport = answer.path("whole_report").asLong();
    registry.ready(answer.path("ordinal").asInt(registry.ordinal()));
  }
}
