// A reader of one partition that polls in short slices and checks in between whether to go on.
package io.trilithon.source;

import io.trilithon.probe.BatchSignal;
import io.trilithon.probe.ReaderProgress;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import scala.Product;

/**
 * The connector's reader polls for the whole rest of a batch, and one empty partition would keep the
 * batch open. A poll returns as soon as there is a record, so slices do not delay records.
 */
final class EndableReader implements SupportsRealTimeRead<InternalRow> {
  static final long SLICE_MS = 400;
  /** In the rows of the connector: key, value, topic, partition, offset. */
  static final int OFFSET_COLUMN = 4;
  private static final RecordStatus NONE = RecordStatus.newStatusWithoutArrivalTime(false);

  private final SupportsRealTimeRead<InternalRow> connector;
  private final BatchSignal batch;
  private ReaderProgress progress;
  private long nextOffset;

  EndableReader(SupportsRealTimeRead<InternalRow> connector, BatchSignal batch) {
    this.connector = connector;
    this.batch = batch;
  }

  @Override
  public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) throws IOException {
    if (progress == null) {
      begin();
    }
    long deadlineNs = System.nanoTime() + timeoutMs * 1_000_000L;
    long sliceMs = batch.remainingMs(Math.min(timeoutMs, SLICE_MS));
    while (sliceMs > 0) {
      if (batch.held()) {
        batch.pause(sliceMs);
      } else {
        RecordStatus status = poll(startMs, sliceMs);
        if (status.hasRecord()) {
          long offset = connector.get().getLong(OFFSET_COLUMN);
          progress.read(nextOffset, offset);
          nextOffset = offset + 1;
          return status;
        }
        progress.foundNothing();
      }
      long leftMs = (deadlineNs - System.nanoTime()) / 1_000_000L;
      sliceMs = batch.remainingMs(Math.min(leftMs, SLICE_MS));
    }
    progress.ended();
    return NONE;
  }

  private void begin() {
    Position start = Position.of(connector.getOffset());
    nextOffset = start.offset();
    progress = batch.begin(
        start.partition(), () -> Position.of(connector.getOffset()).offset());
    batch.awaitCurrent();
  }

  /** The connector's class is private; as a case class it gives its parts in order. */
  private record Position(String partition, long offset) {
    static Position of(PartitionOffset offset) {
      Product parts = (Product) offset;
      return new Position(
          parts.productElement(0).toString(), ((Number) parts.productElement(1)).longValue());
    }
  }

  /** The connector only asserts that the offset where it starts is still in Kafka. */
  private RecordStatus poll(Long startMs, long sliceMs) throws IOException {
    try {
      return connector.nextWithTimeout(startMs, sliceMs);
    } catch (AssertionError e) {
      throw new IllegalStateException(
          "the records at " + connector.getOffset() + " are no longer in Kafka", e);
    }
  }

  @Override
  public RecordStatus nextWithTimeout(Long timeoutMs) throws IOException {
    return nextWithTimeout(System.currentTimeMillis(), timeoutMs);
  }

  @Override
  public PartitionOffset getOffset() {
    return connector.getOffset();
  }

  @Override
  public boolean next() throws IOException {
    return connector.next();
  }

  @Override
  public InternalRow get() {
    return connector.get();
  }

  @Override
  public void close() throws IOException {
    connector.close();
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return connector.currentMetricsValues();
  }
}
