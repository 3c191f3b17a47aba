// Tests of the clock: steps of the wall clock, and records that are under way meanwhile.
package io.trilithon.probe;

class ClockTest {
  private static final long HOUR_US = 3_600_000_000L;
  private static final long MS = 1000;

  private final long beganNs = System.nanoTime();
  private long shiftUs;
  private final Clock clock = new Clock(
      () -> System.currentTimeMillis() * 1000 + shiftUs);

  /** What passes between two looks at a clock is no error: all that passed since the test began. */
  private double tolerance() {
    return 300 * MS + (System.nanoTime() - beganNs) / 1000.0;
  }

  private void step(long us) {
    shiftUs += us;
    clock.followWall();
  }

  void durationsDoNotStep() {
    long before = clock.nowUs();
    step(HOUR_US);
    step(-2 * HOUR_US);
    Check.close(before, clock.nowUs(), tolerance());
    Check.equal(2, clock.steps());
  }

  void theWallClockIsFollowed() {
    step(HOUR_US);
    Check.close(System.currentTimeMillis() * 1000 + HOUR_US, clock.wallUs(), tolerance());
    Check.close(clock.wallUs(), clock.wallOf(clock.nowUs()), tolerance());
    step(-HOUR_US);
    Check.close(System.currentTimeMillis() * 1000, clock.wallUs(), tolerance());
  }

  void aSlewIsNoStep() {
    step(90 * MS);
    Check.equal(0, clock.steps());
  }

  void recordsUnderWayAtAStepForwardKeepTheirLatency() {
    long originUs = clock.wallUs() - 30 * MS;
    step(HOUR_US);
    Check.close(30 * MS, clock.sinceUs(originUs), tolerance());
    Check.close(10 * MS, clock.sinceUs(clock.wallUs() - 10 * MS), tolerance());
  }

  void recordsUnderWayAtAStepBackKeepTheirLatency() {
    long originUs = clock.wallUs() - 30 * MS;
    step(-HOUR_US);
    Check.close(30 * MS, clock.sinceUs(originUs), tolerance());
    Check.close(10 * MS, clock.sinceUs(clock.wallUs() - 10 * MS), tolerance());
  }

  void anOriginAheadIsNegative() {
    Check.close(-5000 * MS, clock.sinceUs(clock.wallUs() + 5000 * MS), tolerance());
  }

  void executorsLearnTheStepsOfTheDriver() {
    long originUs = clock.wallUs() - 30 * MS;
    step(HOUR_US);
    Clock executor = new Clock();
    executor.learnWall(Json.parse(Json.write(clock.wallJson())));
    Check.equal(1, executor.steps());
    Check.close(30 * MS, executor.sinceUs(originUs), tolerance());
  }

  void aRecordFromTheFutureHasNoLatency() {
    LogHistogram histogram = new LogHistogram();
    histogram.addMs(-5000);
    histogram.addMs(-2);
    histogram.addMs(20);
    Check.equal("{\"count\":2,\"sum_ms\":20.0,\"zero\":1,\"buckets\":{\"150\":1},\"ahead\":1,"
        + "\"ahead_max_ms\":5000.0}", histogram.toJson().toString());
  }
}
