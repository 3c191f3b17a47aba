// Tests of reports as differences: whatever is lost, repeated or late, whoever reads them has the
// state of a whole report.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

class ReportsTest {
  private static final String EXECUTOR = "1";

  private final DriverState driver = new DriverState(new Clock());
  private final Registry registry = new Registry();
  private final Report report = new Report(registry, EXECUTOR);
  private final Exchange exchange = new Exchange(registry, EXECUTOR,
      message -> driver.exchange(Json.parse(message), false), reason -> { }, ms -> { });

  private Instance instance(int index) {
    return registry.instance(new InstanceKey("j", "a", index, 1));
  }

  private JsonNode send() {
    String message = report.next("host");
    driver.report(SentReport.of(message));
    exchange.run();
    return SentReport.of(message).json();
  }

  void aRowThatDoesNotChangeIsSentOnce() {
    instance(0);
    instance(1).rejected();
    Check.equal(2, send().path("instances").size());
    JsonNode second = send();
    Check.equal(1L, second.path("base").asLong());
    Check.equal(0, second.path("instances").size());
    instance(1).rejected();
    instance(2);
    JsonNode third = send();
    Check.equal(1L, third.path("base").asLong());
    Check.equal(2, third.path("instances").size());
    Check.equal(2L, taken(driver.totals(), 1, "rejected"));
    Check.equal(3, driver.totals().size());
  }

  void aHistogramIsSentWithTheBucketsThatChanged() {
    LogHistogram histogram = instance(0).endToEnd();
    for (int ms = 1; ms <= 1000; ms++) {
      histogram.addMs(ms);
    }
    JsonNode whole = send().path("instances").get(0).path("e2e");
    histogram.addMs(5.0);
    histogram.addMs(5000.0);
    JsonNode changed = send().path("instances").get(0).path("e2e");
    Check.that(whole.path("buckets").size() > 100, "a bucket per two percent");
    Check.that(!changed.has("buckets"), "the driver has them");
    Check.equal(2, changed.path("more").size());
    JsonNode total = driver.totals().get(0).path("e2e");
    Check.equal(1002L, total.path("count").asLong());
    long counted = 0;
    for (JsonNode count : total.path("buckets")) {
      counted += count.asLong();
    }
    Check.equal(1002L, counted);
    Check.that(!total.has("more"), "merged");
  }

  void reportsDoNotGrowWhileAHistogramFills() {
    LogHistogram histogram = instance(0).endToEnd();
    Random random = new Random(7);
    int early = 0;
    int late = 0;
    for (int second = 0; second < 20 * ReportRows.WHOLE_EVERY; second++) {
      // Each second has latencies of its own.
      double ms = Math.exp(random.nextDouble() * 12);
      for (int i = 0; i < 5; i++) {
        histogram.addMs(ms * (1 + 0.02 * i));
      }
      JsonNode sent = send();
      int length = sent.has("base") ? Json.write(sent.path("instances")).length() : 0;
      early = second < 2 * ReportRows.WHOLE_EVERY ? Math.max(early, length) : early;
      late = second >= 18 * ReportRows.WHOLE_EVERY ? Math.max(late, length) : late;
    }
    Check.that(early > 0 && late <= 1.1 * early, early + " characters became " + late);
  }

  private static long taken(JsonNode rows, int index, String column) {
    for (JsonNode row : rows) {
      if (row.path("index").asInt() == index) {
        return row.path(column).asLong();
      }
    }
    throw new AssertionError("no instance " + index);
  }

  void aReportIsWholeUntilTheDriverSaysThatItHasOne() {
    instance(0);
    Check.that(!SentReport.of(report.next("host")).json().has("base"), "the first is lost");
    exchange.run();
    Check.that(!SentReport.of(report.next("host")).json().has("base"), "whole again");
    driver.report(SentReport.of(report.next("host")));
    Check.that(!SentReport.of(report.next("host")).json().has("base"), "nothing is known of it");
    exchange.run();
    Check.equal(3L, SentReport.of(report.next("host")).base);
  }

  void aWholeReportFollowsANewIncarnationAndComesNowAndThen() {
    int incarnation = driver.startJob("j", List.of("src", "a"));
    registry.instance(new InstanceKey("j", "a", 0, incarnation));
    registry.instance(new InstanceKey("k", "a", 0, 1));
    Check.that(!send().has("base"), "the first");
    Check.that(send().has("base"), "a difference");
    driver.startJob("j", List.of("src", "a"));
    exchange.run();
    JsonNode after = send();
    Check.that(!after.has("base"), "rows are gone");
    Check.equal(1, after.path("instances").size());
    int whole = 0;
    for (int i = 0; i < 10 * ReportRows.WHOLE_EVERY; i++) {
      whole += send().has("base") ? 0 : 1;
    }
    Check.equal(10, whole);
  }

  void anExecutorThatTheDriverCallsLostReportsNothingMore() {
    instance(0);
    send();
    driver.executorLost(EXECUTOR);
    driver.drainReports();
    send();
    send();
    Check.equal(0, driver.drainReports().path("reports").size());
    Check.equal(1, driver.totals().size());
  }

  void whatTheHostDidNotGetItGetsAgain() {
    instance(0);
    send();
    Report other = new Report(new Registry(), "2");
    for (int i = 0; i < 700; i++) {
      driver.report(SentReport.of(other.next("host")));
    }
    Check.that(send().has("base"), "the driver has the whole report");
    JsonNode drained = drained();
    Check.equal("[1]", drained.path("bases").findValues("sequence").toString());
    Check.equal(102L, drained.path("dropped").asLong());
    send();
    Check.that(!drained().has("bases"), "once");
    send();
    driver.resendReports();
    Check.equal(1, drained().path("bases").size());
  }

  private JsonNode drained() {
    return Json.parse(Json.write(driver.drainReports()));
  }

  /** Rows that change as those of executors do: counters, gauges that come back, new rows. */
  private static final class Rows {
    final Map<String, ObjectNode> instances = new LinkedHashMap<>();
    final Map<String, ObjectNode> readers = new LinkedHashMap<>();
    private int incarnation = 1;

    void change(Random random) {
      if (random.nextInt(40) == 0) {
        incarnation++;
        instances.clear();
        readers.clear();
      }
      for (int i = 0; i < 6; i++) {
        if (random.nextInt(4) == 0) {
          String key = i + "/" + incarnation;
          ObjectNode row = copy(instances, key).put("job", "j").put("operator", "a")
              .put("index", i).put("incarnation", incarnation);
          row.put("taken", row.path("taken").asLong() + random.nextInt(3))
              .put("active", random.nextBoolean());
          if (random.nextInt(2) == 0) {
            count(row, random);
          }
          if (random.nextInt(5) == 0) {
            row.put("stalled_us", random.nextInt(2));
          } else {
            row.remove("stalled_us");
          }
          instances.put(key, row);
          ObjectNode reader = copy(readers, key).put("partition", "t-" + i);
          readers.put(key, reader.put("next", reader.path("next").asLong() + random.nextInt(2)));
        }
      }
      instances.replaceAll((key, row) -> row.deepCopy()
          .put("cpu_ns", row.path("cpu_ns").asLong() + random.nextInt(2)));
    }

    /** One more record in a histogram, or, as no probe does it, the histogram begins anew. */
    private static void count(ObjectNode row, Random random) {
      JsonNode before = random.nextInt(50) == 0 ? Json.object() : row.path("e2e");
      ObjectNode histogram = row.putObject("e2e").put("count", before.path("count").asInt() + 1);
      ObjectNode buckets = histogram.putObject("buckets");
      before.path("buckets").properties().forEach(e -> buckets.set(e.getKey(), e.getValue()));
      String bucket = Integer.toString(random.nextInt(9));
      buckets.put(bucket, buckets.path(bucket).asInt() + 1);
      if (random.nextInt(20) == 0) {
        row.remove("e2e");
      }
    }

    private static ObjectNode copy(Map<String, ObjectNode> rows, String key) {
      return rows.containsKey(key) ? rows.get(key).deepCopy() : Json.object();
    }
  }

  void lostRepeatedAndLateReportsGiveTheStateOfWholeOnes() {
    for (int seed = 0; seed < 200; seed++) {
      new Channel(seed).run();
    }
  }

  /** An executor, a driver and a host with a bad line between each two. */
  private static final class Channel {
    private final Random random;
    private final ReportRows sender = new ReportRows();
    private final Rows rows = new Rows();
    private final ReceivedReports received = new ReceivedReports();
    private final Map<Long, String> whole = new HashMap<>();
    private final List<String> underWay = new ArrayList<>();
    /** What the host has: the whole reports that came, and the latest sequence. */
    private final Map<Long, JsonNode> hostBases = new HashMap<>();
    private long known;
    private long taken;

    Channel(int seed) {
      random = new Random(seed);
    }

    void run() {
      for (long sequence = 1; sequence <= 150; sequence++) {
        rows.change(random);
        report(sequence);
        while (!underWay.isEmpty() && random.nextInt(3) > 0) {
          deliver();
        }
        if (random.nextInt(3) > 0) {
          known = received.known(EXECUTOR); // an answer that arrives
        }
        if (random.nextInt(30) == 0) {
          received.forget(EXECUTOR); // a driver that knows nothing of it
          taken = 0;
        }
        drain();
      }
    }

    private void report(long sequence) {
      ObjectNode json = Json.object().put("executor", EXECUTOR).put("sequence", sequence);
      long base = sender.write(json, sequence, known, new LinkedHashMap<>(rows.instances),
          new LinkedHashMap<>(rows.readers));
      whole.put(sequence, sorted(rows.instances.values()));
      underWay.add(SentReport.write(EXECUTOR, 1, sequence, base, Json.write(json)));
    }

    private void deliver() {
      String message = underWay.get(random.nextInt(Math.min(3, underWay.size())));
      if (random.nextInt(4) > 0) {
        SentReport report = SentReport.of(message);
        boolean accepted = received.take(report, 0, 0);
        Check.that(!accepted || report.sequence > taken, "an older one is not taken");
        taken = accepted ? report.sequence : taken;
        if (accepted) {
          List<JsonNode> instances = new ArrayList<>();
          received.forEachInstance((executor, instance) -> instances.add(instance));
          Check.equal(whole.get(taken), sorted(instances));
        }
      }
      if (random.nextInt(4) > 0) {
        underWay.remove(message); // else it is repeated
      }
    }

    /** A host that sometimes loses what it drained, and says so. */
    private void drain() {
      ObjectNode json = Json.object();
      received.drain(json);
      JsonNode drained = Json.parse(Json.write(json));
      if (random.nextInt(10) == 0) {
        return;
      }
      drained.path("bases").forEach(base -> hostBases.put(base.path("sequence").asLong(), base));
      for (JsonNode report : drained.path("reports")) {
        long sequence = report.path("sequence").asLong();
        if (!report.has("base")) {
          hostBases.put(sequence, report);
          Check.equal(whole.get(sequence), sorted(ReportRows.instances(report, Json.object())));
        } else if (hostBases.containsKey(report.path("base").asLong())) {
          JsonNode base = hostBases.get(report.path("base").asLong());
          Check.equal(whole.get(sequence), sorted(ReportRows.instances(base, report)));
        } else {
          received.resend();
        }
      }
    }

    private static String sorted(Iterable<? extends JsonNode> instances) {
      Map<String, String> rows = new TreeMap<>();
      instances.forEach(row -> rows.put(ReportRows.id(row), sortedFields(row)));
      return rows.toString();
    }

    private static String sortedFields(JsonNode row) {
      Map<String, String> fields = new TreeMap<>();
      row.properties().forEach(e -> fields.put(e.getKey(),
          e.getValue().isObject() ? sortedFields(e.getValue()) : e.getValue().toString()));
      return fields.toString();
    }
  }
}
