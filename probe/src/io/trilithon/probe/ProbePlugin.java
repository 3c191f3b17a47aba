// The entry point by which Spark loads the probe: spark.plugins=io.trilithon.probe.ProbePlugin.
package io.trilithon.probe;

import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

public final class ProbePlugin implements SparkPlugin {
  @Override
  public DriverPlugin driverPlugin() {
    return new DriverSide();
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorSide();
  }
}
