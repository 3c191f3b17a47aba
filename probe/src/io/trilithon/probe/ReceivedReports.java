// The executors' reports in the driver: those that wait for the host, and the latest of each
// executor.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.util.RawValue;
import java.util.ArrayDeque;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.BiConsumer;

/**
 * Per executor two texts are kept: the last whole report, and the last report of all. Each later
 * report says what differs from that whole one, so that repeated, late and lost ones change
 * nothing.
 */
final class ReceivedReports {
  /** Ten minutes of one executor's reports, for when the host does not drain them. */
  private static final int MAX_REPORTS = 600;

  private static final class Sender {
    SentReport whole;
    SentReport last;
    /** The whole report that the host has; 0 if it has none. */
    long drained;
  }

  private record Waiting(SentReport report, String text) {}

  private final Map<String, Sender> senders = new TreeMap<>();
  private final ArrayDeque<Waiting> waiting = new ArrayDeque<>();
  private long dropped;

  /** False for a report that is not newer, or is based on one that the driver does not have. */
  boolean take(SentReport report, long wallUs, long clockSteps) {
    Sender sender = senders.computeIfAbsent(report.executor, e -> new Sender());
    boolean newer = sender.last == null || report.sequence > sender.last.sequence;
    if (!newer || !report.isWhole() && report.base != known(report.executor)) {
      return false;
    }
    sender.last = report;
    if (report.isWhole()) {
      sender.whole = report;
    }
    if (waiting.size() == MAX_REPORTS) {
      waiting.removeFirst();
      dropped++;
    }
    waiting.addLast(new Waiting(report, report.withWall(wallUs, clockSteps)));
    return true;
  }

  /** The sequence of the last whole report of an executor; 0 without one. */
  long known(String executor) {
    Sender sender = senders.get(executor);
    return sender == null || sender.whole == null ? 0 : sender.whole.sequence;
  }

  /** The executor will not report again; what it sent still goes to the host. */
  void forget(String executor) {
    senders.remove(executor);
  }

  /** The host has lost what it had: it gets the whole reports again. */
  void resend() {
    senders.values().forEach(sender -> sender.drained = 0);
  }

  int senders() {
    return senders.size();
  }

  /** The characters of the last report of each executor. */
  int characters() {
    return senders.values().stream()
        .mapToInt(sender -> sender.last == null ? 0 : sender.last.text().length()).sum();
  }

  /**
   * Adds "reports" and how many were "dropped" since the last call; and as "bases" the whole
   * reports that the host needs for them and does not have, since they were dropped or it lost them.
   */
  void drain(ObjectNode json) {
    ArrayNode reports = json.putArray("reports");
    ArrayNode bases = Json.array();
    for (Waiting next : waiting) {
      if (usable(next.report, bases)) {
        reports.addRawValue(new RawValue(next.text));
      } else {
        dropped++;
      }
    }
    json.put("dropped", dropped);
    waiting.clear();
    dropped = 0;
    if (!bases.isEmpty()) {
      json.set("bases", bases);
    }
  }

  /** Whether the host has, or now gets, the whole report that this one is based on. */
  private boolean usable(SentReport report, ArrayNode bases) {
    Sender sender = senders.get(report.executor);
    if (sender == null) {
      return true; // of an executor that is gone: the host knows
    }
    if (report.isWhole()) {
      sender.drained = report.sequence;
    } else if (sender.drained != report.base && report.base == known(report.executor)) {
      bases.addRawValue(new RawValue(sender.whole.text()));
      sender.drained = report.base;
    }
    return report.isWhole() || sender.drained == report.base;
  }

  /** The executor and each instance that it has counted for, as it last reported. */
  void forEachInstance(BiConsumer<String, JsonNode> action) {
    senders.keySet().forEach(executor -> forEachInstance(executor, action));
  }

  void forEachInstance(String executor, BiConsumer<String, JsonNode> action) {
    Sender sender = senders.get(executor);
    if (sender != null && sender.whole != null) {
      ReportRows.instances(sender.whole.json(),
          sender.last.isWhole() ? Json.object() : sender.last.json())
          .forEach(instance -> action.accept(executor, instance));
    }
  }
}
