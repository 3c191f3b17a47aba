// The Kafka source of all jobs: Spark's own connector, with readers whose batch can be ended.
package io.trilithon.source;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Queries name this class as their format. Options, schema, offsets and checkpoints are the
 * connector's, so a query can change from one to the other. The connector is reached through Spark's
 * public interfaces and loaded by name: the probe is compiled without it.
 */
public final class KafkaSource implements TableProvider {
  private static final String CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider";

  private final TableProvider connector = connector();

  private static TableProvider connector() {
    try {
      return (TableProvider) Class
          .forName(CONNECTOR, true, Thread.currentThread().getContextClassLoader())
          .getDeclaredConstructor().newInstance();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("Spark's Kafka connector is not among spark.jars", e);
    }
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return connector.inferSchema(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning,
      Map<String, String> properties) {
    return new KafkaTable((SupportsRead) connector.getTable(schema, partitioning, properties));
  }

  /** Streams only: batch reads and writes use the connector itself. */
  private record KafkaTable(SupportsRead connector) implements SupportsRead {
    @Override
    public String name() {
      return "TrilithonKafka";
    }

    @Override
    public Column[] columns() {
      return connector.columns();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      KafkaStream.Memory memory = new KafkaStream.Memory(
          options.getInt(KafkaStream.REMEMBERED, 0), options.getInt(KafkaStream.LATEST, 0));
      return () -> new KafkaScan(connector.newScanBuilder(options).build(), memory);
    }
  }

  private record KafkaScan(Scan connector, KafkaStream.Memory memory) implements Scan {
    @Override
    public StructType readSchema() {
      return connector.readSchema();
    }

    @Override
    public String description() {
      return connector.description();
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new KafkaStream<>((MicroBatchStream & SupportsRealTimeMode
          & SupportsTriggerAvailableNow & ReportsSourceMetrics)
          connector.toMicroBatchStream(checkpoint), memory);
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return connector.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return connector.reportDriverMetrics();
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
      return connector.columnarSupportMode();
    }
  }
}
