// How long an instance has worked on one record, sampled by the reporter.
package io.trilithon.probe;

/**
 * A record is in work from its take to the end of its last row. Rows that {@code explode} makes are
 * computed one after the other, and nothing tells whether another one follows: there the thread's
 * CPU time says whether it still works. A sample counts for at most two seconds, so that a JVM that
 * was suspended, or a machine that slept, does not look like a record that takes for ever.
 */
final class Stall {
  private static final long LONGEST_SAMPLE_NS = 2_000_000_000L;

  private long progressAtNs;
  private long sampledNs;
  private long sampledCpuNs;
  private long stalledNs;

  /**
   * The time without progress up to now. {@code lastProgressNs} is when the instance last took,
   * marked or was parked; {@code working} is whether a record is known to be in work.
   */
  long sample(boolean working, long lastProgressNs, long nowNs, long cpuNs) {
    long wallNs = Math.min(LONGEST_SAMPLE_NS, nowNs - sampledNs);
    boolean busy = working || cpuNs - sampledCpuNs > wallNs / 2;
    boolean first = sampledNs == 0 || lastProgressNs != progressAtNs;
    stalledNs = first || !busy ? 0 : stalledNs + wallNs;
    progressAtNs = lastProgressNs;
    sampledNs = nowNs;
    sampledCpuNs = cpuNs;
    return stalledNs;
  }

  void reset() {
    sampledNs = 0;
    stalledNs = 0;
  }
}
