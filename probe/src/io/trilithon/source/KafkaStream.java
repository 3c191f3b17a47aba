// The connector's stream with other readers: offsets, planning and metrics stay the connector's.
package io.trilithon.source;

import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.trilithon.probe.BatchSignal;
import java.io.Serializable;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
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
import scala.Product;

final class KafkaStream<S extends MicroBatchStream & SupportsRealTimeMode
    & SupportsTriggerAvailableNow & ReportsSourceMetrics>
    implements MicroBatchStream, SupportsRealTimeMode, SupportsTriggerAvailableNow,
    ReportsSourceMetrics {
  /**
   * The option that says how many ids of each partition to remember, so that doubles are left out;
   * without it nothing is. The keys of the records are their ids.
   */
  static final String REMEMBERED = "trilithon.remembered";

  /**
   * The option that says how many keys of each partition to keep with their latest record, which a
   * reader delivers again at the start of each batch; without it none are.
   */
  static final String LATEST = "trilithon.latest";
  /** So many records before a batch are read for the latest of each key. */
  private static final int LATEST_RECORDS = 1 << 17;

  private final S connector;
  private final Memory memory;

  KafkaStream(S connector, Memory memory) {
    this.connector = connector;
    this.memory = memory;
  }

  /** The ids and the keys that the reader of a partition remembers; 0 for none. */
  record Memory(int ids, int keys) implements Serializable {
    int records() {
      return Math.max(ids, keys > 0 ? LATEST_RECORDS : 0);
    }
  }

  private record ReaderFactory(PartitionReaderFactory connector, Memory memory)
      implements PartitionReaderFactory {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      BatchSignal batch = BatchSignal.ofTask();
      if (partition instanceof WithEarlier both) {
        Function<String, Optional<PartitionReader<InternalRow>>> earlier =
            name -> both.earlier(name).map(connector::createReader);
        return memory.keys() > 0
            ? new EndableReader(reader(both.own()), batch, memory.keys(), earlier)
            : new EndableReader(reader(both.own()), batch, new Doubles(memory.ids(), earlier));
      }
      return new EndableReader(reader(partition), batch, null);
    }

    @SuppressWarnings("unchecked")
    private SupportsRealTimeRead<InternalRow> reader(InputPartition partition) {
      return (SupportsRealTimeRead<InternalRow>) connector.createReader(partition);
    }
  }

  /** A partition of a batch, and the records before the batch that may have to be remembered. */
  private record WithEarlier(InputPartition own, InputPartition[] before)
      implements InputPartition {
    @Override
    public String[] preferredLocations() {
      return own.preferredLocations();
    }

    Optional<InputPartition> earlier(String name) {
      return Arrays.stream(before).filter(range -> nameOf(range).equals(name)).findFirst();
    }

    /** The connector's classes are private; as case classes they give their parts in order. */
    private static String nameOf(InputPartition range) {
      Product offsets = (Product) ((Product) range).productElement(0);
      return offsets.productElement(0).toString();
    }
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ReaderFactory(connector.createReaderFactory(), memory);
  }

  @Override
  public void prepareForRealTimeMode() {
    connector.prepareForRealTimeMode();
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start) {
    InputPartition[] own = connector.planInputPartitions(start);
    if (memory.records() == 0) {
      return own;
    }
    InputPartition[] before = connector.planInputPartitions(earlier(start), start);
    return Arrays.stream(own).map(partition -> new WithEarlier(partition, before))
        .toArray(InputPartition[]::new);
  }

  /** So far back that what is to be remembered is read. */
  private Offset earlier(Offset start) {
    ObjectNode topics = (ObjectNode) Doubles.parse(start.json());
    topics.properties().forEach(topic -> topic.getValue().properties().forEach(
        partition -> partition.setValue(LongNode.valueOf(
            Math.max(0, partition.getValue().asLong() - memory.records())))));
    return connector.deserializeOffset(topics.toString());
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
