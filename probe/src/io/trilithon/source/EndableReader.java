// A reader of one partition that polls in short slices and checks in between whether to go on.
package io.trilithon.source;

import io.trilithon.probe.BatchSignal;
import io.trilithon.probe.ReaderProgress;
import java.io.IOException;
import java.util.Collections;
import java.util.Iterator;
import java.util.Optional;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
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
  private static final RecordStatus AGAIN = RecordStatus.newStatusWithoutArrivalTime(true);

  private final SupportsRealTimeRead<InternalRow> connector;
  private final BatchSignal batch;
  /** Null if doubles are not left out. */
  private final Doubles doubles;
  /** How many keys are kept with their latest row; 0 if none are. */
  private final int keys;
  private final Function<String, Optional<PartitionReader<InternalRow>>> earlier;
  private LatestRows latest;
  /** The rows that are still to be delivered again, and the one that is now. */
  private Iterator<InternalRow> again = Collections.emptyIterator();
  private InternalRow delivered;
  private ReaderProgress progress;
  private PollGuard guard;
  private long nextOffset;

  EndableReader(SupportsRealTimeRead<InternalRow> connector, BatchSignal batch, Doubles doubles) {
    this(connector, batch, doubles, 0, partition -> Optional.empty());
  }

  /** Delivers the latest row of each key again when a batch begins. */
  EndableReader(SupportsRealTimeRead<InternalRow> connector, BatchSignal batch, int keys,
      Function<String, Optional<PartitionReader<InternalRow>>> earlier) {
    this(connector, batch, null, keys, earlier);
  }

  private EndableReader(SupportsRealTimeRead<InternalRow> connector, BatchSignal batch,
      Doubles doubles, int keys, Function<String, Optional<PartitionReader<InternalRow>>> earlier) {
    this.connector = connector;
    this.batch = batch;
    this.doubles = doubles;
    this.keys = keys;
    this.earlier = earlier;
  }

  @Override
  public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) throws IOException {
    if (progress == null) {
      begin();
    }
    delivered = null;
    if (again.hasNext()) {
      delivered = again.next();
      return AGAIN;
    }
    long deadlineNs = System.nanoTime() + timeoutMs * 1_000_000L;
    long sliceMs = batch.remainingMs(Math.min(timeoutMs, SLICE_MS));
    while (sliceMs > 0) {
      if (batch.held()) {
        batch.pause(sliceMs);
      } else {
        RecordStatus status = poll(startMs, sliceMs);
        if (status == null) {
          // Woken: nothing is known of what is there.
        } else if (status.hasRecord()) {
          long offset = connector.get().getLong(OFFSET_COLUMN);
          progress.read(nextOffset, offset);
          nextOffset = offset + 1;
          if (latest != null) {
            latest.add(connector.get());
          }
          if (doubles == null || doubles.first(connector.get(), offset)) {
            return status;
          }
          progress.leftOut();
        } else {
          progress.foundNothing();
        }
      }
      long leftMs = (deadlineNs - System.nanoTime()) / 1_000_000L;
      sliceMs = batch.remainingMs(Math.min(leftMs, SLICE_MS));
    }
    progress.ended();
    return NONE;
  }

  private void begin() throws IOException {
    Position start = Position.of(connector.getOffset());
    nextOffset = start.offset();
    guard = new PollGuard(connector);
    progress = batch.begin(
        start.partition(), () -> Position.of(connector.getOffset()).offset());
    batch.awaitCurrent();
    if (doubles != null) {
      doubles.begin(batch, start.partition(), nextOffset);
    }
    if (keys > 0) {
      latest = LatestRows.begin(batch, start.partition(), nextOffset, keys, earlier);
      again = latest.rows().iterator();
    }
  }

  /** The connector's class is private; as a case class it gives its parts in order. */
  private record Position(String partition, long offset) {
    static Position of(PartitionOffset offset) {
      Product parts = (Product) offset;
      return new Position(
          parts.productElement(0).toString(), ((Number) parts.productElement(1)).longValue());
    }
  }

  /**
   * Null if the poll was woken. The connector only asserts that the offset where it starts is still
   * in Kafka.
   */
  private RecordStatus poll(Long startMs, long sliceMs) throws IOException {
    guard.begins(sliceMs);
    try {
      return connector.nextWithTimeout(startMs, sliceMs);
    } catch (AssertionError e) {
      throw new IllegalStateException(
          "the records at " + connector.getOffset() + " are no longer in Kafka", e);
    } catch (RuntimeException e) {
      if (PollGuard.woke(e)) {
        return null;
      }
      throw e;
    } finally {
      guard.ends();
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
    return delivered != null ? delivered : connector.get();
  }

  @Override
  public void close() throws IOException {
    if (guard != null) {
      guard.close();
    }
    connector.close();
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return connector.currentMetricsValues();
  }
}
