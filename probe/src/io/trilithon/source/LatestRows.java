// The latest row of each key of one partition of an internal topic, for a reader that delivers them
// again at the start of each batch.
package io.trilithon.source;

import io.trilithon.probe.BatchSignal;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;

/**
 * Tasks may run on other executors in each batch, and know nothing there of what was broadcast
 * before. The memory lasts from batch to batch on an executor; where it is missing, the records
 * before the batch are read from the topic.
 */
final class LatestRows {
  /** In the rows of the connector, after key, value, topic, partition, offset, timestamp. */
  static final int TYPE_COLUMN = 6;
  /** In place of the timestamp's type: the row was delivered before. */
  static final int AGAIN = -1;
  private static final int KEY_COLUMN = 0;

  private final int most;
  private final Map<ByteBuffer, InternalRow> rows = new LinkedHashMap<>();
  /** Everything before this offset has been added. */
  private long next = -1;

  LatestRows(int most) {
    this.most = most;
  }

  /**
   * The latest rows before a batch that begins at this offset, in their order; {@code before} reads
   * those of a partition.
   */
  static LatestRows begin(BatchSignal batch, String partition, long offset, int most,
      Function<String, Optional<PartitionReader<InternalRow>>> before) throws IOException {
    LatestRows latest = batch.kept(partition, LatestRows.class, () -> new LatestRows(most));
    if (latest.next < offset) {
      Optional<PartitionReader<InternalRow>> earlier = before.apply(partition);
      if (earlier.isPresent()) {
        try (PartitionReader<InternalRow> reader = earlier.get()) {
          while (reader.next()) {
            latest.add(reader.get());
          }
        }
      }
      latest.next = Math.max(latest.next, offset);
    }
    return latest;
  }

  synchronized void add(InternalRow row) {
    next = Math.max(next, row.getLong(EndableReader.OFFSET_COLUMN) + 1);
    if (row.isNullAt(KEY_COLUMN)) {
      return;
    }
    ByteBuffer key = ByteBuffer.wrap(row.getBinary(KEY_COLUMN).clone());
    rows.remove(key);
    if (rows.size() == most) {
      rows.remove(rows.keySet().iterator().next());
    }
    InternalRow kept = row.copy();
    kept.setInt(TYPE_COLUMN, AGAIN);
    rows.put(key, kept);
  }

  /** In the order in which they came. */
  synchronized List<InternalRow> rows() {
    return new ArrayList<>(rows.values());
  }
}
