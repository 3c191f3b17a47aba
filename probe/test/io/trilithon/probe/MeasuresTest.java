// Tests of moments, histogram, inter-arrival times, clock and the reading of torn counters.
package io.trilithon.probe;

import java.util.Random;

class MeasuresTest {
  void momentsAreCountSumAndSquares() {
    Moments m = new Moments();
    m.add(3);
    m.add(4);
    Check.equal("{\"count\":2,\"sum_us\":7.0,\"sumsq_us2\":25.0}", Json.write(m.toJson()));
  }

  void eachBucketIsWithinOnePercent() {
    Random random = new Random(7);
    for (int i = 0; i < 100_000; i++) {
      double value = Math.exp(random.nextDouble() * 20 - 6);
      double ratio = LogHistogram.valueMs(LogHistogram.key(value)) / value;
      Check.close(1, ratio, LogHistogram.ACCURACY + 1e-9);
    }
  }

  void theKeyIsDdsketchs() {
    double gamma = 1.01 / 0.99;
    Check.equal((int) Math.ceil(Math.log(37.5) / Math.log(gamma)), LogHistogram.key(37.5));
    Check.equal(0, LogHistogram.key(1.0));
  }

  void extremesStayInTheOutermostBuckets() {
    LogHistogram h = new LogHistogram();
    h.addMs(-1);
    h.addMs(0);
    h.addMs(1e-9);
    h.addMs(1e30);
    Check.equal(2L, h.toJson().path("zero").asLong());
    Check.equal(4L, h.toJson().path("count").asLong());
    Check.equal(1L, h.toJson().path("buckets").path("" + LogHistogram.MIN_KEY).asLong());
    Check.equal(1L, h.toJson().path("buckets").path("" + LogHistogram.MAX_KEY).asLong());
  }

  void gapsOfShuffledStampsAreThoseOfSortedOnes() {
    Arrivals a = new Arrivals();
    long[] stamps = {1000, 3000, 2000, 4000, 6000, 5000, 7000};
    for (long s : stamps) {
      a.add(s);
    }
    a.flush();
    Check.equal(6L, a.gaps.count);
    Check.close(6000, a.gaps.sum, 0);
    Check.close(6e6, a.gaps.sumOfSquares, 0);
  }

  void theGapAcrossABoundaryDoesNotCount() {
    Arrivals a = new Arrivals();
    a.add(1000);
    a.add(2000);
    a.flush();
    a.add(900_000);
    a.add(901_000);
    a.flush();
    Check.equal(2L, a.gaps.count);
    Check.close(2000, a.gaps.sum, 0);
  }

  void theFastestExchangeGivesTheOffset() {
    Clock clock = new Clock();
    clock.sample(1000, 3000, 52_500);
    Check.equal(50_500L, clock.offsetUs());
    Check.equal(1000L, clock.errorUs());
    clock.sample(10_000, 10_100, 60_050);
    Check.equal(50_000L, clock.offsetUs());
    Check.equal(50L, clock.errorUs());
    clock.sample(20_000, 29_000, 99_000);
    Check.equal(50_000L, clock.offsetUs());
  }

  void theClockIsTheWallClock() {
    long before = System.currentTimeMillis();
    long nowMs = new Clock().nowUs() / 1000;
    long after = System.currentTimeMillis();
    Check.that(before - 200 <= nowMs && nowMs <= after + 200, before + ".." + after + ": " + nowMs);
  }

  void readersNeverSeeHalfARecord() throws Exception {
    SeqLock lock = new SeqLock();
    long[] pair = new long[2];
    Thread writer = new Thread(() -> {
      for (long i = 1; i < 20_000; i++) {
        if (i % 10 == 0) {
          java.util.concurrent.locks.LockSupport.parkNanos(10_000);
        }
        lock.beginWrite();
        pair[0] = i;
        pair[1] = -i;
        lock.endWrite();
      }
    });
    writer.start();
    while (writer.isAlive()) {
      long[] copy = lock.read(Integer.MAX_VALUE, pair::clone);
      Check.equal(0L, copy[0] + copy[1]);
    }
    writer.join();
  }
}
