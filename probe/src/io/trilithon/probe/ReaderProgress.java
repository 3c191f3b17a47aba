// How far the reader of one partition is, on one executor, over all batches of an incarnation.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.function.LongSupplier;

/** Written by the thread of the reader's task, read by the reporter. */
public final class ReaderProgress {
  /** A partition's name is topic-number. */
  record Key(String job, int incarnation, String partition) {}

  private final Key key;
  private final Clock clock;
  private volatile long batch = -1;
  private volatile LongSupplier next = () -> -1;
  private volatile boolean idle;
  private volatile long skipped;
  private volatile long doubles;
  private volatile long beganUs;
  private volatile long polledUs;
  private volatile long firstUs;
  private volatile long endedUs;

  ReaderProgress(Key key, Clock clock) {
    this.key = key;
    this.clock = clock;
  }

  /** A reader begins; the supplier gives the offset of its next record. */
  void begin(long batchNumber, LongSupplier nextOffset) {
    idle = false;
    polledUs = 0;
    firstUs = 0;
    next = nextOffset;
    beganUs = clock.nowUs();
    batch = batchNumber;
  }

  /** A poll brought a record. Offsets before it that hold none are skipped. */
  public void read(long expectedOffset, long offset) {
    if (firstUs == 0) {
      polled();
      firstUs = clock.nowUs();
    }
    if (offset > expectedOffset) {
      skipped = skipped + (offset - expectedOffset);
    }
    if (idle) {
      idle = false;
    }
  }

  /** A record was left out: an earlier one has the same id. */
  public void leftOut() {
    doubles = doubles + 1;
  }

  /** A poll brought nothing: whatever was committed before it began has been read. */
  public void foundNothing() {
    polled();
    if (!idle) {
      idle = true;
    }
  }

  /** Of a batch that has ended the time stays, until the next one ends. */
  public void ended() {
    idle = false;
    endedUs = clock.nowUs();
  }

  private void polled() {
    if (polledUs == 0) {
      polledUs = clock.nowUs();
    }
  }

  Key key() {
    return key;
  }

  ObjectNode toJson() {
    return Json.object().put("job", key.job).put("incarnation", key.incarnation)
        .put("partition", key.partition).put("batch", batch).put("next", next.getAsLong())
        .put("idle", idle).put("skipped", skipped)
        .put("doubles", doubles).put("began_us", beganUs)
        .put("polled_us", polledUs).put("first_us", firstUs).put("ended_us", endedUs);
  }
}
