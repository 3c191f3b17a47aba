// How a reader polls and ends, with a connector that answers what the test says.
package io.trilithon.source;

import io.trilithon.probe.BatchState;
import io.trilithon.probe.Check;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import scala.Tuple2;

public final class EndableReaderTest {
  private final BatchState batch = new BatchState();
  private final Connector connector = new Connector();
  private final EndableReader reader = new EndableReader(connector, batch.signal, null);

  /** Has the records of a queue; without one it waits for the whole timeout, as the real one. */
  public static final class Connector implements SupportsRealTimeRead<InternalRow> {
    final Queue<Long> records = new ArrayDeque<>();
    final List<Long> timeouts = new ArrayList<>();
    Runnable whilePolled = () -> { };
    Long record = 16L;
    private final CountDownLatch woken = new CountDownLatch(1);
    private final Connector consumer = this;

    @Override
    public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) {
      timeouts.add(timeoutMs);
      whilePolled.run();
      Long read = records.poll();
      if (read == null) {
        try {
          Thread.sleep(timeoutMs);
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
        }
      }
      record = read == null ? record : read;
      return RecordStatus.newStatusWithoutArrivalTime(read != null);
    }

    /** As the real one, it hides its consumer two classes deep. */
    public Connector org$apache$spark$sql$kafka010$KafkaBatchPartitionReader$$consumer() {
      return this;
    }

    public scala.Option<Connector> _consumer() {
      return scala.Option.apply(this);
    }

    public void wakeup() {
      woken.countDown();
    }

    void sleepUntilWoken() {
      try {
        Check.that(woken.await(60, TimeUnit.SECONDS), "woken");
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
      throw new org.apache.kafka.common.errors.WakeupException();
    }

    @Override
    public PartitionOffset getOffset() {
      return new Position("clicks-0", record + 1);
    }

    @Override
    public boolean next() {
      return false;
    }

    @Override
    public InternalRow get() {
      return new GenericInternalRow(new Object[] {null, null, null, 0, record});
    }

    @Override
    public void close() {}
  }

  /** As the connector's case class. */
  private static final class Position extends Tuple2<String, Long> implements PartitionOffset {
    Position(String partition, long offset) {
      super(partition, offset);
    }
  }

  private boolean next(long timeoutMs) throws IOException {
    return reader.nextWithTimeout(0L, timeoutMs).hasRecord();
  }

  public void aRecordComesAtOnce() throws IOException {
    connector.records.add(17L);
    Check.that(next(300_000), "there is one");
    Check.equal(17L, reader.get().getLong(EndableReader.OFFSET_COLUMN));
    Check.equal(1, connector.timeouts.size());
  }

  public void anEmptyPartitionIsPolledInSlicesUntilTheBatchIsOver() throws IOException {
    Check.that(!next(2000), "none came");
    Check.that(connector.timeouts.size() >= 2, "in slices");
    Check.that(connector.timeouts.stream().allMatch(ms -> ms <= EndableReader.SLICE_MS), "short");
  }

  public void anEmptyPartitionEndsWithinASlice() throws IOException {
    connector.whilePolled = batch::end;
    long beganNs = System.nanoTime();
    Check.that(!next(300_000), "ended");
    Check.equal(1, connector.timeouts.size());
    Check.that(System.nanoTime() - beganNs < 60_000_000_000L, "long before the batch is over");
  }

  /** Kafka's consumer waits by the wall clock: when that is set back, for an hour. */
  public void aPollThatOutlastsItsTimeIsWokenAndTheReaderGoesOn() throws IOException {
    connector.whilePolled = () -> {
      connector.whilePolled = () -> { };
      connector.records.add(17L);
      connector.sleepUntilWoken();
    };
    Check.that(next(300_000), "the next poll finds it");
    Check.equal(2, connector.timeouts.size());
    reader.close();
  }

  public void aReaderWithRecordsEndsBeforeTheNextOne() throws IOException {
    connector.records.addAll(List.of(17L, 18L));
    Check.that(next(300_000), "the first");
    batch.end();
    Check.that(!next(300_000), "ended");
    Check.equal(1, connector.records.size());
  }

  public void aHeldReaderReadsNothingUntilItIsReleased() throws IOException {
    connector.records.add(17L);
    batch.hold();
    Check.that(!next(120), "held for the whole time");
    Check.equal(0, connector.timeouts.size());
    batch.release();
    Check.that(next(60_000), "goes on");
  }

  public void offsetsThatKafkaNoLongerHasAreNamed() {
    connector.whilePolled = () -> {
      throw new AssertionError("assertion failed");
    };
    Check.refused("(clicks-0,17) are no longer in Kafka", () -> {
      try {
        next(100);
      } catch (IOException e) {
        throw new AssertionError(e);
      }
    });
  }

  public void itsProgressIsReported() throws IOException {
    connector.records.add(17L);
    connector.records.add(20L);
    next(300_000);
    Check.equal("clicks-0", batch.reader().path("partition").asText());
    Check.equal(7, batch.reader().path("incarnation").asInt());
    Check.equal(18L, batch.reader().path("next").asLong());
    Check.equal(0L, batch.reader().path("skipped").asLong());
    Check.that(!batch.reader().path("idle").asBoolean(), "reads");
    next(300_000);
    Check.equal(2L, batch.reader().path("skipped").asLong());
    Check.equal(0L, batch.reader().path("ended_us").asLong());
    connector.whilePolled = () -> {
      if (connector.timeouts.size() == 4) {
        Check.that(batch.reader().path("idle").asBoolean(), "nothing is left");
        batch.end();
      }
    };
    next(300_000);
    Check.equal(4, connector.timeouts.size());
    Check.that(!batch.reader().path("idle").asBoolean(), "it no longer looks");
    Check.equal(21L, batch.reader().path("next").asLong());
    long beganUs = batch.reader().path("began_us").asLong();
    long firstUs = batch.reader().path("first_us").asLong();
    Check.that(beganUs <= firstUs, "in order");
    Check.that(firstUs <= batch.reader().path("ended_us").asLong(), "in order");
  }

  public void whatOneReaderSkippedIsCountedOnInTheNextBatch() throws IOException {
    connector.records.add(20L);
    next(300_000);
    Check.equal(3L, batch.reader().path("skipped").asLong());
    EndableReader later = new EndableReader(connector, batch.signal, null);
    connector.records.add(22L);
    later.nextWithTimeout(0L, 300_000L);
    Check.equal(4L, batch.reader().path("skipped").asLong());
  }
}
