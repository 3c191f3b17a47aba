// The connector's stream with other readers: offsets, planning and metrics stay the connector's.
package io.trilithon.source;

import io.trilithon.probe.BatchSignal;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

final class KafkaStream<S extends MicroBatchStream & SupportsRealTimeMode
    & SupportsTriggerAvailableNow & ReportsSourceMetrics>
    implements MicroBatchStream, SupportsRealTimeMode, SupportsTriggerAvailableNow,
    ReportsSourceMetrics {
  private final S connector;

  KafkaStream(S connector) {
    this.connector = connector;
  }

  private record ReaderFactory(PartitionReaderFactory connector)
      implements PartitionReaderFactory {
    @Override
    @SuppressWarnings("unchecked")
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      return new EndableReader(
          (SupportsRealTimeRead<InternalRow>) connector.createReader(partition),
          BatchSignal.ofTask());
    }
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ReaderFactory(connector.createReaderFactory());
  }

  @Override
  public void prepareForRealTimeMode() {
    connector.prepareForRealTimeMode();
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start) {
    return connector.planInputPartitions(start);
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return connector.planInputPartitions(start, end);
  }

  @Override
  public Offset mergeOffsets(PartitionOffset[] offsets) {
    return connector.mergeOffsets(offsets);
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    connector.prepareForTriggerAvailableNow();
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return connector.getDefaultReadLimit();
  }

  @Override
  public Offset latestOffset() {
    return connector.latestOffset();
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return connector.latestOffset(start, limit);
  }

  @Override
  public Offset reportLatestOffset() {
    return connector.reportLatestOffset();
  }

  @Override
  public Offset initialOffset() {
    return connector.initialOffset();
  }

  @Override
  public Offset deserializeOffset(String json) {
    return connector.deserializeOffset(json);
  }

  @Override
  public void commit(Offset end) {
    connector.commit(end);
  }

  @Override
  public void stop() {
    connector.stop();
  }

  @Override
  public Map<String, String> metrics(Optional<Offset> latestConsumed) {
    return connector.metrics(latestConsumed);
  }

  @Override
  public String toString() {
    return "Trilithon" + connector;
  }
}
