// What a reader of a broadcast delivers again when a batch begins.
package io.trilithon.source;

import io.trilithon.probe.BatchState;
import io.trilithon.probe.Check;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;

public final class LatestRowsTest {
  private final BatchState batch = new BatchState();
  private int timesRead;

  private static InternalRow row(String key, long offset) {
    byte[] bytes = key == null ? null : key.getBytes(StandardCharsets.UTF_8);
    return new GenericInternalRow(new Object[] {bytes, null, null, 0, offset, 0L, 0});
  }

  private LatestRows begin(long offset, int most, InternalRow... earlier) throws IOException {
    return LatestRows.begin(batch.signal, "hot-0", offset, most, name -> {
      timesRead++;
      return Optional.of(reader(List.of(earlier).iterator()));
    });
  }

  private static PartitionReader<InternalRow> reader(Iterator<InternalRow> rows) {
    return new PartitionReader<>() {
      @Override
      public boolean next() {
        return rows.hasNext();
      }

      @Override
      public InternalRow get() {
        return rows.next();
      }

      @Override
      public void close() {}
    };
  }

  private static List<Long> offsets(LatestRows latest) {
    List<Long> offsets = new ArrayList<>();
    for (InternalRow row : latest.rows()) {
      Check.equal(LatestRows.AGAIN, row.getInt(LatestRows.TYPE_COLUMN));
      offsets.add(row.getLong(EndableReader.OFFSET_COLUMN));
    }
    return offsets;
  }

  public void theLatestRowOfEachKeyComesAgainInItsOrder() throws IOException {
    LatestRows latest = begin(4, 10, row("a", 0), row("b", 1), row(null, 2), row("a", 3));
    Check.equal(List.of(1L, 3L), offsets(latest));
    latest.add(row("b", 4));
    Check.equal(List.of(3L, 4L), offsets(latest));
  }

  public void theTopicIsReadOnlyWhereTheMemoryIsMissing() throws IOException {
    begin(2, 10, row("a", 0), row("b", 1)).add(row("a", 2));
    LatestRows next = begin(3, 10);
    Check.equal(1, timesRead);
    Check.equal(List.of(1L, 2L), offsets(next));
    begin(9, 10, row("c", 8));
    Check.equal(2, timesRead);
  }

  public void theOldestKeyGoesIfThereAreTooMany() throws IOException {
    Check.equal(List.of(1L, 2L), offsets(begin(3, 2, row("a", 0), row("b", 1), row("c", 2))));
  }
}
