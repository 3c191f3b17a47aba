// Tests of the driver's state: generations, placements, totals.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;

class DriverTest {
  private final DriverState driver = new DriverState(new Clock());

  private boolean push(String table) {
    return driver.setTable("j", "a", (ObjectNode) Json.parse(table));
  }

  private JsonNode effective() {
    return driver.describe().path("j/a").path("effective");
  }

  void anOlderGenerationIsNotTaken() {
    Check.that(push("{\"generation\":2,\"weights\":[1,1]}"), "new");
    Check.that(!push("{\"generation\":2,\"weights\":[1]}"), "same");
    Check.that(!push("{\"generation\":1,\"weights\":[1]}"), "older");
    Check.equal("[1,1]", effective().path("weights").toString());
  }

  void aBadTableChangesNothing() {
    push("{\"generation\":1,\"weights\":[1]}");
    Check.refused("all weights are 0", () -> push("{\"generation\":2,\"weights\":[0]}"));
    Check.refused("'generation'", () -> push("{\"weights\":[1]}"));
    Check.equal(1L, effective().path("generation").asLong());
  }

  void theCreditIsKeptOverTables() {
    push("{\"generation\":1,\"weights\":[1]}");
    driver.setCredit("j", "a", 5);
    push("{\"generation\":2,\"weights\":[1,1]}");
    Check.equal(5, effective().path("credit").asInt());
    Check.refused("at least 1", () -> driver.setCredit("j", "a", 0));
    Check.refused("no table yet", () -> driver.setCredit("j", "x", 3));
  }

  void incarnationsAreAtLeastWhatTheHostSays() {
    int first = driver.startJob("j", List.of("src", "a"));
    driver.leastIncarnation(first + 3600);
    Check.equal(first + 3600, driver.startJob("j", List.of("src", "a")));
    Check.equal(first + 3601, driver.startJob("j", List.of("src", "a")));
  }

  void aWishIsResolvedAnewForEachBatch() {
    driver.startJob("j", List.of("src", "a"));
    push("{\"generation\":1,\"executors\":{\"1\":1}}");
    Check.equal("", effective().path("batch").asText());
    driver.located("j", 1, "r:0", Map.of(0, "0", 1, "1"));
    Check.equal("[0,1]", effective().path("weights").toString());
    driver.located("j", 1, "r:1", Map.of(0, "1", 1, "0"));
    Check.equal("[1,0]", effective().path("weights").toString());
    Check.equal("r:1", effective().path("batch").asText());
  }

  private long sequence;

  private SentReport report(String executor, int index, long taken, boolean active) {
    ObjectNode report = Json.object().put("executor", executor);
    ObjectNode i = report.putArray("instances").addObject().put("job", "j").put("operator", "a")
        .put("index", index).put("incarnation", 1).put("active", active).put("taken", taken);
    i.putObject("out").putObject("b").putObject("sent_to").put("0", taken);
    return SentReport.of(SentReport.write(executor, 1_000_000, ++sequence, 0, Json.write(report)));
  }

  void anInstanceThatMovedIsSummed() {
    driver.report(report("0", 3, 100, false));
    driver.report(report("1", 3, 40, true));
    driver.report(report("1", 3, 50, true));
    JsonNode sum = driver.totals().get(0);
    Check.equal(150L, sum.path("taken").asLong());
    Check.equal(150L, sum.path("out").path("b").path("sent_to").path("0").asLong());
    Check.equal(3, sum.path("index").asInt());
    Check.equal("1", sum.path("executor").asText());
    Check.equal(0, sum.path("losses").asInt());
  }

  void aLostExecutorStaysInTheSumAndIsSaid() {
    driver.report(report("0", 3, 100, true));
    driver.executorLost("0");
    JsonNode sum = driver.totals().get(0);
    Check.equal(100L, sum.path("taken").asLong());
    Check.equal(1, sum.path("losses").asInt());
    Check.that(!sum.path("active").asBoolean(), "not active");
  }

  void executorsThatAreLostOneAfterTheOtherAddUp() {
    for (int i = 0; i < 50; i++) {
      driver.report(report(Integer.toString(i), 3, 10, true));
      driver.executorLost(Integer.toString(i));
      driver.report(report(Integer.toString(i), 3, 99, true)); // too late: its threads may go on
    }
    driver.report(report("50", 3, 7, true));
    Check.equal(1, driver.totals().size());
    JsonNode sum = driver.totals().get(0);
    Check.equal(507L, sum.path("taken").asLong());
    Check.equal(50, sum.path("losses").asInt());
    Check.equal("50", sum.path("executor").asText());
  }

  void aReportIsPassedOnAsItCameWithTheTimeOfTheWall() {
    SentReport sent = report("host 1/7", 3, 100, true);
    Check.equal("host 1/7", sent.executor);
    Check.equal(1_000_000L, sent.timeUs);
    driver.report(sent);
    JsonNode drained = Json.parse(Json.write(driver.drainReports())).path("reports").get(0);
    Check.equal("host 1/7", drained.path("executor").asText());
    Check.equal(100L, drained.path("instances").get(0).path("taken").asLong());
    Check.that(drained.path("wall_us").isIntegralNumber(), "has the time of the wall clock");
    Check.equal(0, drained.path("clock_steps").asInt());
  }

  void reportsAreDrainedOnceAndBounded() {
    for (int i = 0; i < 700; i++) {
      driver.report(report("0", 0, i, true));
    }
    ObjectNode drained = driver.drainReports();
    Check.equal(600, drained.path("reports").size());
    Check.equal(100L, drained.path("dropped").asLong());
    Check.equal(0, driver.drainReports().path("reports").size());
  }

  void anEndedJobLeavesNothing() {
    driver.startJob("j", List.of("src", "a"));
    push("{\"generation\":1,\"weights\":[1]}");
    driver.report(report("0", 0, 9, true));
    driver.endJob("j");
    Check.equal(0, driver.totals().size());
    Check.that(driver.describe().isEmpty(), "no table");
  }

  void aLostExecutorIsToldOnce() {
    driver.report(report("1", 0, 5, true));
    driver.executorLost("1");
    Check.equal("[\"1\"]", driver.drainReports().path("lost").toString());
    Check.equal("[]", driver.drainReports().path("lost").toString());
  }
}
