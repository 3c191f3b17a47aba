// Leaves out the records of an internal topic that a replay has written again.
package io.trilithon.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.trilithon.probe.BatchSignal;
import java.io.IOException;
import java.util.Optional;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;

/**
 * One per reader. The memory lasts from batch to batch on an executor; where it is missing, after a
 * restart or on another executor, the ids are read from the topic itself. So nothing has to be saved.
 */
final class Doubles {
  /** In the rows of the connector: key, value, topic, partition, offset. */
  private static final int KEY_COLUMN = 0;
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private final int remembered;
  private final Function<String, Optional<PartitionReader<InternalRow>>> before;
  private RecentIds ids;

  /** {@code before} reads the records before a batch, of a partition by its name. */
  Doubles(int remembered, Function<String, Optional<PartitionReader<InternalRow>>> before) {
    this.remembered = remembered;
    this.before = before;
  }

  /** A batch begins at this offset: what is not known of the records before it is read. */
  void begin(BatchSignal batch, String partition, long offset) throws IOException {
    ids = batch.kept(partition, RecentIds.class, () -> new RecentIds(remembered));
    if (ids.next() >= offset) {
      return;
    }
    Optional<PartitionReader<InternalRow>> earlier = before.apply(partition);
    if (earlier.isPresent()) {
      try (PartitionReader<InternalRow> reader = earlier.get()) {
        while (reader.next()) {
          InternalRow row = reader.get();
          first(row, row.getLong(EndableReader.OFFSET_COLUMN));
        }
      }
    }
    ids.knownUntil(offset);
  }

  /** Whether no record before it has the same id. */
  boolean first(InternalRow row, long offset) {
    return row.isNullAt(KEY_COLUMN) || ids.first(row.getBinary(KEY_COLUMN), offset);
  }

  static JsonNode parse(String json) {
    try {
      return MAPPER.readTree(json);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException("not the offsets of a Kafka source: " + json, e);
    }
  }
}
