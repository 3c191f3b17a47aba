// The credits of one operator in one batch, as seen from one executor: records that it sent, and
// how many were taken.
package io.trilithon.probe;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * Counts are per sending executor, which is in the stamp: each sender knows its own records in
 * flight. The credit B is divided between the executors that send. A cell lives for one batch: when
 * a batch ends normally nothing is in flight, and after a failure the records in flight are
 * replayed and must not count for ever.
 */
final class CreditCell {
  /**
   * Even to an idle receiver a record takes some milliseconds (the shuffle batches for 5 ms), so B
   * alone would cap a receiver at B / 5 ms: 4,000/s. As many records as it takes in this time may
   * always be in flight.
   */
  static final long ALLOWANCE_US = 20_000;
  /**
   * The same where several executors take part: threads of several JVMs compete for the cores, and a
   * record may travel for longer than 20 ms. A window of less than the records on their way lowers
   * the rate, a lower rate the window, and so on down to B. So the window is of a longer time, and of
   * the best rate of late rather than the present one, which it limits itself.
   */
  static final long SPREAD_ALLOWANCE_US = 100_000;
  private static final double BEST_RATE_KEPT = 0.9;
  /** Half the time between two exchanges: over less, a rate is that of one flush. */
  private static final long LEAST_SPAN_US = 50_000;
  /** One executor must be able to keep a receiver busy while its credit returns. */
  static final int MIN_WINDOW = 2;

  final String name;
  final AtomicLongArray sent = new AtomicLongArray(RoutingTable.MAX_TASKS);
  final Map<Integer, AtomicLongArray> takenBySender = new ConcurrentHashMap<>();
  private final AtomicReferenceArray<RemoteTaken> remote =
      new AtomicReferenceArray<>(RoutingTable.MAX_TASKS);
  private final AtomicLongArray allowance = new AtomicLongArray(RoutingTable.MAX_TASKS);
  private final long[] measured = new long[RoutingTable.MAX_TASKS];
  private final double[] bestPerUs = new double[RoutingTable.MAX_TASKS];
  private long measuredAtUs;
  private volatile int senders = 1;
  private volatile boolean receivesElsewhere;
  private int users;

  CreditCell(String name) {
    this.name = name;
  }

  /** A cell's name: an operator in a batch of a run. */
  static String name(String receiver, String batch) {
    return receiver + "|" + batch;
  }

  void took(int sender, int task) {
    takenBySender.computeIfAbsent(sender, s -> new AtomicLongArray(RoutingTable.MAX_TASKS))
        .incrementAndGet(task);
  }

  /** Takes one credit of a task if there is one. */
  boolean reserve(int task, int self, int credit, long nowUs) {
    long window = Math.max(Math.min(MIN_WINDOW, credit), (credit + senders - 1) / senders);
    window = Math.max(window, allowance.get(task));
    while (true) {
      long out = sent.get(task);
      if (out - taken(task, self, nowUs, out) >= window) {
        return false;
      }
      if (sent.compareAndSet(task, out, out + 1)) {
        return true;
      }
    }
  }

  /**
   * After an exchange: the rate at which each task takes our records, and so how many may be in
   * transport to it. Exchanges may follow each other faster than a rate can be measured.
   */
  void measure(int self, long nowUs) {
    long spanUs = nowUs - measuredAtUs;
    if (measuredAtUs != 0 && spanUs >= 0 && spanUs < LEAST_SPAN_US) {
      return;
    }
    AtomicLongArray here = takenBySender.get(self);
    for (int task = 0; task < measured.length; task++) {
      long local = here == null ? 0 : here.get(task);
      long perSpan = local - measured[task];
      measured[task] = local;
      double perUs = measuredAtUs == 0 || spanUs <= 0 ? 0 : (double) perSpan / spanUs;
      RemoteTaken there = remote.get(task);
      // By the times at which the receiver counted: what a late exchange brings is no higher rate.
      perUs += there == null ? 0 : there.presentPerUs();
      bestPerUs[task] = Math.max(perUs, BEST_RATE_KEPT * bestPerUs[task]);
      allowance.set(task, (long) (spread()
          ? SPREAD_ALLOWANCE_US * bestPerUs[task] : ALLOWANCE_US * perUs));
    }
    measuredAtUs = nowUs;
  }

  private boolean spread() {
    return senders > 1 || receivesElsewhere;
  }

  /**
   * Whether the credit of a task is used up only because its count has not come back: it runs on
   * another executor and keeps up, or nothing is known of it yet.
   */
  boolean awaitsCount(int task, int self) {
    RemoteTaken there = remote.get(task);
    if (there != null) {
      return there.keepsUp();
    }
    AtomicLongArray here = takenBySender.get(self);
    return here == null || here.get(task) == 0;
  }

  private long taken(int task, int self, long nowUs, long out) {
    AtomicLongArray here = takenBySender.get(self);
    RemoteTaken there = remote.get(task);
    long local = here == null ? 0 : here.get(task);
    return there == null ? local : local + there.estimate(nowUs, out - local);
  }

  /** The exact number of records taken: distinguishes a stuck gate from a slow one. */
  long knownTaken(int task, int self) {
    AtomicLongArray here = takenBySender.get(self);
    RemoteTaken there = remote.get(task);
    return (here == null ? 0 : here.get(task)) + (there == null ? 0 : there.known());
  }

  /** The number of sending executors between which the credit is divided. */
  void divideBetween(int sendingExecutors) {
    senders = Math.max(1, sendingExecutors);
  }

  /** The driver's count of our records taken on other executors. */
  void learn(int task, long taken, long atUs, long nowUs) {
    RemoteTaken there = remote.get(task);
    if (there == null) {
      there = new RemoteTaken();
      remote.set(task, there);
      receivesElsewhere = true;
    }
    there.update(taken, atUs, nowUs, sent.get(task));
  }

  synchronized void use() {
    users++;
  }

  /** True when the last task of this batch has released the cell. */
  synchronized boolean release() {
    return --users == 0;
  }
}
