// Tests of the time that an instance has worked on one record.
package io.trilithon.probe;

class StallTest {
  private static final long S = 1_000_000_000L;
  private final Stall stall = new Stall();

  private long sample(boolean working, long progressS, long nowS, long cpuS) {
    return stall.sample(working, progressS * S, nowS * S, cpuS * S) / S;
  }

  void aRecordInWorkGrowsOlder() {
    Check.equal(0L, sample(true, 10, 11, 0));
    Check.equal(1L, sample(true, 10, 12, 0));
    Check.equal(2L, sample(true, 10, 13, 0));
  }

  void progressStartsAgain() {
    sample(true, 10, 11, 0);
    sample(true, 10, 12, 0);
    Check.equal(0L, sample(true, 12, 13, 0));
    Check.equal(1L, sample(true, 12, 14, 0));
  }

  void anIdleInstanceIsNotStalled() {
    sample(false, 10, 11, 5);
    Check.equal(0L, sample(false, 10, 12, 5));
    Check.equal(0L, sample(false, 10, 60, 5));
  }

  void aThreadThatUsesTheCpuAfterItsLastMarkStillWorks() {
    sample(false, 10, 11, 5);
    Check.equal(1L, sample(false, 10, 12, 6));
    Check.equal(2L, sample(false, 10, 13, 7));
  }

  void aSuspendedJvmCountsForTwoSeconds() {
    sample(true, 10, 11, 0);
    Check.equal(2L, sample(true, 10, 3611, 0));
  }
}
