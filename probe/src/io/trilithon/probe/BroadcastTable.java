// What was broadcast to one instance of an operator: the latest row of each key, as text.
package io.trilithon.probe;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The thread of the instance's task writes and reads it; tasks of later batches find it again. If
 * there are too many keys, the one whose row came first goes.
 */
final class BroadcastTable {
  /** As many as the reader of the internal topic delivers again at the start of a batch. */
  static final int MOST_KEYS = 1 << 16;

  private final int most;
  private final Map<UTF8String, UTF8String> rows = new LinkedHashMap<>();

  BroadcastTable(int most) {
    this.most = most;
  }

  /** Copies both: Spark uses the memory of its rows again. */
  synchronized void put(UTF8String key, UTF8String row) {
    rows.remove(key);
    if (rows.size() == most) {
      rows.remove(rows.keySet().iterator().next());
    }
    rows.put(key.copy(), row.copy());
  }

  /** The latest row of the key, or null. */
  synchronized UTF8String get(UTF8String key) {
    return rows.get(key);
  }
}
