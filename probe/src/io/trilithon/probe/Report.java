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
  private final ReportRows rows = new ReportRows();
  private long sequence;

  Report(Registry registry, String executor) {
    this.registry = registry;
    this.executor = executor;
  }

  /** The message with the next report. */
  String next(String host) {
    long nowUs = registry.clock.nowUs();
    ObjectNode json = Json.object().put("version", VERSION)
        .put("executor", executor)
        .put("ordinal", registry.ordinal()).put("host", host).put("sequence", ++sequence)
        .put("time_us", nowUs);
    json.putObject("machine").put("cores", SYSTEM.getAvailableProcessors())
        .put("load", SYSTEM.getSystemLoadAverage()).put("cpu_machine", SYSTEM.getCpuLoad())
        .put("cpu_process", SYSTEM.getProcessCpuLoad())
        .put("cpu_process_ns", SYSTEM.getProcessCpuTime())
        .put("heap_bytes", Runtime.getRuntime().maxMemory())
        .put("heap_used_bytes",
            Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory());
    json.putObject("clock").put("offset_us", registry.clock.offsetUs())
        .put("error_us", registry.clock.errorUs());
    long base = rows.write(json, sequence, registry.wholeReport, registry.instanceRows(),
        registry.readerRows());
    return SentReport.write(executor, nowUs, sequence, base, Json.write(json));
  }
}
