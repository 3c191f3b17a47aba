// The report that an executor sends every second.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;

final class Report {
  static final int VERSION = 1;
  private static final OperatingSystemMXBean SYSTEM =
      (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

  private final Registry registry;
  private final String executor;
  private long sequence;

  Report(Registry registry, String executor) {
    this.registry = registry;
    this.executor = executor;
  }

  ObjectNode next(String host) {
    ObjectNode json = Json.object().put("kind", "report").put("version", VERSION)
        .put("executor", executor)
        .put("ordinal", registry.ordinal()).put("host", host).put("sequence", ++sequence)
        .put("time_us", registry.clock.nowUs());
    json.putObject("machine").put("cores", SYSTEM.getAvailableProcessors())
        .put("load", SYSTEM.getSystemLoadAverage()).put("cpu_machine", SYSTEM.getCpuLoad())
        .put("cpu_process", SYSTEM.getProcessCpuLoad())
        .put("cpu_process_ns", SYSTEM.getProcessCpuTime());
    json.putObject("clock").put("offset_us", registry.clock.offsetUs())
        .put("error_us", registry.clock.errorUs());
    json.set("instances", registry.instancesJson());
    json.set("readers", registry.readersJson());
    return json;
  }
}
