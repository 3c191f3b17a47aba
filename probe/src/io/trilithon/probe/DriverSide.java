// The plugin in the driver: answers exchanges, takes reports, listens to the scheduler.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;

final class DriverSide implements DriverPlugin {
  static final String EXCHANGE_MS = "spark.trilithon.exchangeMs";
  static final String REPORT_MS = "spark.trilithon.reportMs";
  static final String STUCK_MS = "spark.trilithon.gateStuckMs";
  private static final String DRIVER = "driver";

  private DriverState state;

  @Override
  public Map<String, String> init(SparkContext spark, PluginContext context) {
    state = new DriverState(Registry.JVM.clock);
    TaskLocations locations = new TaskLocations(state);
    spark.addSparkListener(locations);
    Control.connect(state, locations);
    Executors.connect(spark);
    return Map.of(
        EXCHANGE_MS, spark.conf().get(EXCHANGE_MS, "100"),
        REPORT_MS, spark.conf().get(REPORT_MS, "1000"),
        STUCK_MS, spark.conf().get(STUCK_MS, "10000"));
  }

  /** Called for one message at a time: must not block. */
  @Override
  public Object receive(Object message) {
    String text = (String) message;
    if (SentReport.is(text)) {
      state.report(SentReport.of(text));
      return null;
    }
    JsonNode json = Json.parse(text);
    return state.exchange(json, json.path("executor").asText().equals(DRIVER));
  }
}
