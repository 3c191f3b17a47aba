// Tests of the clock: steps of the wall clock, and records that are under way meanwhile.
package io.trilithon.probe;

class ClockTest {
  private static final long HOUR_US = 3_600_000_000L;
  private static final long MS = 1000;
  private static final double TOLERANCE = 300 * MS;

  private long shiftUs;
  private final Clock clock = new Clock(
      () -> System.currentTimeMillis() * 1000 + shiftUs);

  private void step(long us) {
    shiftUs += us;
    clock.followWall();
  }

  void durationsDoNotStep() {
    long before = clock.nowUs();
    step(HOUR_US);
    step(-2 * HOUR_US);
    Check.close(before, clock.nowUs(), TOLERANCE);
    Check.equal(2, clock.steps());
  }

  void theWallClockIsFollowed() {
    step(HOUR_US);
    Check.close(System.currentTimeMillis() * 1000 + HOUR_US, clock.wallUs(), TOLERANCE);
    Check.close(clock.wallUs(), clock.wallOf(clock.nowUs()), TOLERANCE);
    step(-HOUR_US);
    Check.close(System.currentTimeMillis() * 1000, clock.wallUs(), TOLERANCE);
  }

  void aSlewIsNoStep() {
    step(90 * MS);
    Check.equal(0, clock.steps());
  }

  void recordsUnderWayAtAStepForwardKeepTheirLatency() {
    long originUs = clock.wallUs() - 30 * MS;
    step(HOUR_US);
    Check.close(30 * MS, clock.sinceUs(originUs), TOLERANCE);
    Check.close(10 * MS, clock.sinceUs(clock.wallUs() - 10 * MS), TOLERANCE);
  }

  void recordsUnderWayAtAStepBackKeepTheirLatency() {
    long originUs = clock.wallUs() - 30 * MS;
    step(-HOUR_US);
    Check.close(30 * MS, clock.sinceUs(originUs), TOLERANCE);
    Check.close(10 * MS, clock.sinceUs(clock.wallUs() - 10 * MS), TOLERANCE);
  }

  void anOriginAheadIsNegative() {
    Check.close(-5000 * MS, clock.sinceUs(clock.wallUs() + 5000 * MS), TOLERANCE);
  }

  void executorsLearnTheStepsOfTheDriver() {
    long originUs = clock.wallUs() - 30 * MS;
    step(HOUR_US);
    Clock executor = new Clock();
    executor.learnWall(Json.parse(Json.write(clock.wallJson())));
    Check.equal(1, executor.steps());
    Check.close(30 * MS, executor.sinceUs(originUs), TOLERANCE);
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
