// The end-to-end latency histogram: DDSketch's logarithmic mapping, relative accuracy 0.01.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * Key k counts values v in (gamma^(k-1), gamma^k] ms, k = ceil(ln v / ln gamma), gamma =
 * (1+a)/(1-a) (Masson et al., DDSketch, VLDB 2019, section 2). Dense inside, because it is written
 * per record; sparse in reports. A record whose origin is in the future has no latency: it is
 * counted apart, with the largest such time.
 */
final class LogHistogram {
  static final double ACCURACY = 0.01;
  static final double GAMMA = (1 + ACCURACY) / (1 - ACCURACY);
  /** A microsecond and more than eleven days; values outside count in the outermost buckets. */
  static final int MIN_KEY = -346;
  static final int MAX_KEY = 1040;
  private static final double LN_GAMMA = Math.log(GAMMA);

  private final long[] counts = new long[MAX_KEY - MIN_KEY + 1];
  /** Values that are more negative than this are not due to a small difference of clocks. */
  static final double AHEAD_MS = 10;

  private long zero;
  private long ahead;
  private double aheadMs;
  private long count;
  private double sumMs;

  static int key(double valueMs) {
    int key = (int) Math.ceil(Math.log(valueMs) / LN_GAMMA);
    return Math.min(MAX_KEY, Math.max(MIN_KEY, key));
  }

  /** The value that a bucket stands for: within 1 % of everything in it. */
  static double valueMs(int key) {
    return 2 * Math.pow(GAMMA, key) / (GAMMA + 1);
  }

  void addMs(double valueMs) {
    if (valueMs < -AHEAD_MS) {
      ahead++;
      aheadMs = Math.max(aheadMs, -valueMs);
      return;
    }
    count++;
    if (valueMs <= 0) {
      zero++;
      return;
    }
    sumMs += valueMs;
    counts[key(valueMs) - MIN_KEY]++;
  }

  ObjectNode toJson() {
    ObjectNode buckets = Json.object();
    for (int i = 0; i < counts.length; i++) {
      if (counts[i] != 0) {
        buckets.put(Integer.toString(i + MIN_KEY), counts[i]);
      }
    }
    ObjectNode json = Json.object().put("count", count).put("sum_ms", sumMs).put("zero", zero);
    json.set("buckets", buckets);
    if (ahead > 0) {
      json.put("ahead", ahead).put("ahead_max_ms", aheadMs);
    }
    return json;
  }
}
