// Tests of credits and the gate.
package io.trilithon.probe;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

class CreditTest {
  /** Longer than a slow machine may keep a thread waiting. */
  private static final long PATIENCE_MS = 60_000;

  /** Loads the gate's class, and with it the logger, before a test looks at the clock. */
  CreditTest() {
    Gate.stuckAfterMs(10 * PATIENCE_MS);
  }

  private static void awaitParked(Thread sender) {
    while (sender.getState() != Thread.State.TIMED_WAITING) {
      Check.that(sender.getState() != Thread.State.TERMINATED, "parked");
      Thread.onSpinWait();
    }
  }

  private static final class Counts implements Gate.Meter {
    final AtomicLong parkedNs = new AtomicLong();
    final AtomicInteger forced = new AtomicInteger();

    @Override
    public void parked(int task, long ns) {
      parkedNs.addAndGet(ns);
    }

    @Override
    public void forced() {
      forced.incrementAndGet();
    }
  }

  void atMostBAreInFlight() {
    CreditCell cell = new CreditCell("c");
    for (int i = 0; i < 20; i++) {
      Check.that(cell.reserve(3, 0, 20, 0), "credit " + i);
    }
    Check.that(!cell.reserve(3, 0, 20, 0), "no more");
    Check.that(cell.reserve(4, 0, 20, 0), "another task has its own");
    cell.took(0, 3);
    Check.that(cell.reserve(3, 0, 20, 0), "one came back");
  }

  void theCreditIsDividedBetweenExecutors() {
    CreditCell cell = new CreditCell("c");
    cell.divideBetween(2);
    int granted = 0;
    while (cell.reserve(0, 0, 20, 0)) {
      granted++;
    }
    Check.equal(10, granted);
    cell.divideBetween(1000);
    CreditCell small = new CreditCell("d");
    small.divideBetween(1000);
    Check.that(small.reserve(0, 0, 20, 0) && small.reserve(0, 0, 20, 0), "never below two");
    Check.that(!small.reserve(0, 0, 20, 0), "nor above");
  }

  private static int granted(CreditCell cell, int credit) {
    int granted = 0;
    while (cell.reserve(0, 0, credit, 0)) {
      granted++;
    }
    return granted;
  }

  void aFastReceiverMayHaveTwentyMillisecondsOfWorkInFlight() {
    CreditCell cell = new CreditCell("c");
    cell.measure(0, 1_000_000);
    for (int i = 0; i < 10_000; i++) {
      cell.sent.incrementAndGet(0);
      cell.took(0, 0);
    }
    cell.measure(0, 2_000_000);
    Check.equal(200, granted(cell, 20));
  }

  void aSlowReceiverStaysAtB() {
    CreditCell cell = new CreditCell("c");
    cell.measure(0, 1_000_000);
    for (int i = 0; i < 100; i++) {
      cell.sent.incrementAndGet(0);
      cell.took(0, 0);
    }
    cell.measure(0, 2_000_000);
    Check.equal(20, granted(cell, 20));
  }

  /** The records of the last of five seconds, to an idle receiver that each reaches after 40 ms. */
  private static int passedInTheLastSecond(int sendingExecutors) {
    CreditCell cell = new CreditCell("c");
    cell.divideBetween(sendingExecutors);
    int[] sentAt = new int[5_000];
    for (int ms = 0; ms < sentAt.length; ms++) {
      for (int i = ms >= 40 ? sentAt[ms - 40] : 0; i > 0; i--) {
        cell.took(0, 0);
      }
      while (sentAt[ms] < 5 && cell.reserve(0, 0, 20, 1000L * ms)) {
        sentAt[ms]++;
      }
      if (ms % 100 == 0) {
        cell.measure(0, 1_000_000 + 1000L * ms);
      }
    }
    return java.util.Arrays.stream(sentAt, 4_000, 5_000).sum();
  }

  void betweenExecutorsALongWayDoesNotCloseTheWindow() {
    // Below 20 ms of a rate that the window itself lowers, 10 records would be on their way: 250/s.
    Check.that(passedInTheLastSecond(2) > 4_500, "of 5,000/s: " + passedInTheLastSecond(2));
  }

  void betweenExecutorsTheWindowFollowsAReceiverThatBecameSlow() {
    CreditCell cell = new CreditCell("c");
    cell.divideBetween(2);
    cell.measure(0, 1_000_000);
    cell.sent.addAndGet(0, 10_000);
    for (int i = 0; i < 10_000; i++) {
      cell.took(0, 0);
    }
    cell.measure(0, 2_000_000);
    Check.equal(1_000, granted(cell, 20));
    for (int i = 1; i <= 40; i++) {
      for (int k = 0; k < 10; k++) {
        cell.took(0, 0);
      }
      cell.measure(0, 2_000_000 + 100_000L * i);
    }
    cell.sent.set(0, cell.knownTaken(0, 0));
    Check.that(granted(cell, 20) <= 20, "100/s again: at most a little above 10");
  }

  void anExchangeThatWasLateDoesNotOpenTheWindow() {
    CreditCell cell = new CreditCell("c");
    cell.divideBetween(2);
    // 1,000 records/s: 100 may be on their way. For 600 ms no count comes, then all at once.
    int most = 0;
    for (int i = 1; i <= 40; i++) {
      long atUs = 1_000_000 + 100_000L * i;
      boolean late = i >= 20 && i < 26;
      if (!late) {
        long countedUs = i == 26 ? atUs - 640_000 : atUs;
        cell.learn(0, (countedUs - 1_000_000) / 1000, countedUs, atUs);
        cell.measure(0, atUs);
        cell.learn(0, (atUs - 1_000_000) / 1000, atUs, atUs + 60_000);
        cell.measure(0, atUs + 60_000);
      }
      cell.sent.set(0, cell.knownTaken(0, 0));
      most = Math.max(most, granted(cell, 20));
    }
    Check.that(most >= 90 && most <= 250, "at most " + most);
  }

  void recordsOfOtherSendersAreNotOurs() {
    CreditCell cell = new CreditCell("c");
    cell.reserve(0, 0, 1, 0);
    cell.took(7, 0);
    Check.equal(0L, cell.knownTaken(0, 0));
  }

  private static RemoteTaken exchanged(long[]... takenAndSent) {
    RemoteTaken taken = new RemoteTaken();
    long nowUs = 1_000_000;
    for (long[] step : takenAndSent) {
      taken.update(step[0], nowUs - 50_000, nowUs, step[1]);
      nowUs += 100_000;
    }
    return taken;
  }

  void aReceiverWithAQueueIsCarriedOnAtItsRate() {
    // 100/s are taken and 20 wait there; the count is 50 ms old, by now 5 more are taken, in
    // another 50 ms 10
    RemoteTaken taken = exchanged(new long[] {10, 35}, new long[] {20, 45}, new long[] {30, 55},
        new long[] {40, 65}, new long[] {50, 75}, new long[] {60, 85}, new long[] {70, 95});
    Check.close(75, taken.estimate(1_600_000, 95), 1);
    Check.close(80, taken.estimate(1_650_000, 95), 1);
  }

  void aReceiverThatKeepsUpMayGetTwiceItsBestRate() {
    RemoteTaken taken = exchanged(new long[] {10, 10}, new long[] {20, 20}, new long[] {30, 30});
    Check.close(30 + 2 * 10, taken.estimate(1_250_000, 1000), 1);
  }

  void theEstimateIsNeverAboveWhatWasSent() {
    RemoteTaken taken = exchanged(new long[] {10, 10}, new long[] {20, 20}, new long[] {30, 30});
    Check.equal(31L, taken.estimate(1_250_000, 31));
  }

  void aReceiverThatStopsIsHeldAtItsCredit() {
    long[][] steps = new long[12][];
    for (int i = 0; i < steps.length; i++) {
      steps[i] = i < 2 ? new long[] {10 * i, 10 * i + 20} : new long[] {20, 40};
    }
    Check.equal(20L, exchanged(steps).estimate(2_100_000 + 100_000, 40));
  }

  void oldNewsIsIgnored() {
    RemoteTaken taken = new RemoteTaken();
    taken.update(200, 2_000_000, 2_000_000, 200);
    taken.update(100, 1_000_000, 2_100_000, 200);
    Check.equal(200L, taken.known());
  }

  void aDeadExchangeOpensNoGateForEver() {
    RemoteTaken taken = exchanged(new long[] {0, 0}, new long[] {1000, 1000});
    Check.equal(1000 + 2 * 5000L, taken.estimate(60_000_000, 1_000_000));
  }

  void aSenderAwaitsTheCountOfAReceiverThatIsUnknownOrKeepsUp() {
    CreditCell cell = new CreditCell("c");
    Check.that(cell.awaitsCount(0, 0), "nothing is known of it");
    cell.took(0, 0);
    Check.that(!cell.awaitsCount(0, 0), "it is on this executor: its counts are exact");
    cell.learn(1, 0, 1_000_000, 1_000_000);
    Check.that(cell.awaitsCount(1, 0), "it has taken what was sent");
    cell.sent.addAndGet(1, 30);
    for (int i = 1; i < 4; i++) {
      cell.learn(1, i, 1_000_000 + 100_000 * i, 1_000_000 + 100_000 * i);
    }
    Check.that(!cell.awaitsCount(1, 0), "records wait there: a newer count would not help");
  }

  /**
   * The records that a sender may send within a second to an idle receiver on another executor,
   * which takes them 6 ms later, if counts come back by exchanges that are so far apart.
   */
  private static long sentInASecond(int exchangeMs) {
    CreditCell cell = new CreditCell("c");
    cell.divideBetween(2);
    long[] sentAtMs = new long[1001];
    long reported = 0;
    long reportedAtUs = 0;
    for (int ms = 1; ms <= 1000; ms++) {
      long nowUs = 5_000_000 + 1000L * ms;
      // The receiver's exchange comes half a period before the sender's.
      if (ms % exchangeMs == exchangeMs / 2) {
        reported = sentAtMs[Math.max(0, ms - 6)];
        reportedAtUs = nowUs;
      }
      if (ms % exchangeMs == 0 && reportedAtUs > 0) {
        cell.learn(0, reported, reportedAtUs, nowUs);
        cell.measure(0, nowUs);
      }
      for (int i = 0; i < 50 && cell.reserve(0, 0, 20, nowUs); i++) {
        sentAtMs[ms]++;
      }
      sentAtMs[ms] += sentAtMs[ms - 1];
    }
    return sentAtMs[1000];
  }

  void fasterExchangesOpenTheGateToAFastReceiverSooner() {
    long usual = sentInASecond(100);
    long fast = sentInASecond((int) ExchangePace.FASTEST_MS);
    // 50 a millisecond would be 50,000.
    Check.that(usual < 25_000, "every 100 ms: " + usual);
    Check.that(fast > 35_000, "every 20 ms: " + fast);
  }

  /** The part of its time before the gate that a sender is counted as parked. */
  private static double shareCountedAsParked() throws Exception {
    CreditCell cell = new CreditCell("c");
    cell.reserve(0, 0, 1, 0);
    Counts counts = new Counts();
    AtomicInteger got = new AtomicInteger(-1);
    Thread sender = new Thread(() ->
        got.set(Gate.pass(cell, () -> 0, () -> 1, 0, new Clock(), null, counts)));
    long beganNs = System.nanoTime();
    sender.start();
    Thread.sleep(100);
    Check.that(sender.isAlive(), "parked");
    cell.took(0, 0);
    sender.join(PATIENCE_MS);
    Check.equal(0, got.get());
    Check.equal(0, counts.forced.get());
    return counts.parkedNs.get() / (double) (System.nanoTime() - beganNs);
  }

  void aParkedSenderGoesOnWhenARecordIsTaken() throws Exception {
    double most = 0;
    for (int i = 0; i < 5 && most < 0.5; i++) {
      double share = shareCountedAsParked();
      Check.that(share <= 1, "no longer than it was there: " + share);
      most = Math.max(most, share);
    }
    // A slow machine starts the thread late and looks late whether it has ended.
    Check.that(most >= 0.5, "most of the time is counted: " + most);
  }

  void aParkedSenderFollowsANewTable() throws Exception {
    CreditCell cell = new CreditCell("c");
    cell.reserve(0, 0, 1, 0);
    AtomicInteger choice = new AtomicInteger(0);
    AtomicInteger got = new AtomicInteger(-1);
    Thread sender = new Thread(
        () -> got.set(Gate.pass(cell, choice::get, () -> 1, 0, new Clock(), null, new Counts())));
    sender.start();
    awaitParked(sender);
    choice.set(5);
    sender.join(PATIENCE_MS);
    Check.equal(5, got.get());
  }

  void anInterruptLetsTheSenderOut() throws Exception {
    CreditCell cell = new CreditCell("c");
    cell.reserve(0, 0, 1, 0);
    AtomicInteger interrupted = new AtomicInteger();
    Thread sender = new Thread(() -> {
      Gate.pass(cell, () -> 0, () -> 1, 0, new Clock(), null, new Counts());
      interrupted.set(Thread.currentThread().isInterrupted() ? 1 : 0);
    });
    sender.start();
    awaitParked(sender);
    sender.interrupt();
    sender.join(PATIENCE_MS);
    Check.equal(1, interrupted.get());
  }

  void aStuckGateForcesARecordThrough() {
    Gate.stuckAfterMs(50);
    try {
      CreditCell cell = new CreditCell("c");
      cell.reserve(0, 0, 1, 0);
      Counts counts = new Counts();
      Check.equal(0, Gate.pass(cell, () -> 0, () -> 1, 0, new Clock(), null, counts));
      Check.equal(1, counts.forced.get());
    } finally {
      Gate.stuckAfterMs(10 * PATIENCE_MS);
    }
  }

  void sendersOfOneExecutorNeverOvershoot() throws Exception {
    CreditCell cell = new CreditCell("c");
    AtomicLong most = new AtomicLong();
    Thread[] senders = new Thread[4];
    for (int s = 0; s < senders.length; s++) {
      senders[s] = new Thread(() -> {
        for (int i = 0; i < 5000; i++) {
          Gate.pass(cell, () -> 0, () -> 7, 0, new Clock(), null, new Counts());
        }
      });
      senders[s].start();
    }
    for (int taken = 0; taken < 20_000;) {
      long inFlight = cell.sent.get(0) - taken;
      most.accumulateAndGet(inFlight, Math::max);
      if (inFlight > 0) {
        cell.took(0, 0);
        taken++;
      }
    }
    for (Thread sender : senders) {
      sender.join();
    }
    Check.that(most.get() <= 7, "in flight " + most.get());
  }
}
