package io.trilithon.probe;

/** Senders before a cut go as slowly as they are told, for as long, and no longer. */
public final class HoldBacksTest {
  private static final String EDGE = "t/j~a/a.b";

  public void anEdgeIsHeldBackUntilATimeUnlessItIsLetGo() {
    HoldBacks driver = new HoldBacks();
    driver.set("a/b.c", 1000, 50, 0);
    Check.equal(50L, driver.pauseUs("a/b.c", 999));
    Check.equal(0L, driver.pauseUs("a/b.d", 999));
    Check.equal(0L, driver.pauseUs("a/b.c", 1000));
    driver.set("a/b.c", 5000, HoldBacks.CLOSED, 1000);
    Check.equal(HoldBacks.CLOSED, driver.pauseUs("a/b.c", 1001));
    driver.set("a/b.c", 5000, 0, 1001);
    Check.equal(0L, driver.pauseUs("a/b.c", 1002));
  }

  public void executorsKnowWhatTheDriverSaidLast() {
    HoldBacks driver = new HoldBacks();
    HoldBacks executor = new HoldBacks();
    driver.set("a/b.c", 1000, 70, 0);
    executor.learn(driver.toJson(10));
    Check.equal(70L, executor.pauseUs("a/b.c", 500));
    executor.learn(Json.object());
    Check.equal(0L, executor.pauseUs("a/b.c", 500));
    Check.equal(0, driver.toJson(1000).size());
  }

  private static LeaveProbe probe(Registry registry, Instance sender) {
    BatchSignal batch = new BatchSignal(registry, null, "t/j~a", 1, "run", 0);
    return new LeaveProbe(registry, EdgeName.parse("t/j~a/a>a.b"), sender, null, batch);
  }

  public void aSenderOfAClosedEdgeWaitsAndTheTimeCountsForTheEdge() {
    Registry registry = new Registry();
    Instance sender = registry.instance(new InstanceKey("t/j~a", "a", 0, 1));
    LeaveProbe probe = probe(registry, sender);
    probe.leave();
    long nowUs = registry.clock.nowUs();
    long openUs = nowUs + 300_000;
    registry.holdBacks.set(EDGE, openUs, HoldBacks.CLOSED, nowUs);
    long leftUs = probe.leave();
    Check.that(registry.clock.nowUs() >= openUs, "waited");
    Check.close(registry.clock.wallUs(), leftUs, 60e6);
    // A slow machine begins to wait late.
    Check.that(sender.outbound("a.b").parkedNs >= 100_000_000L, "counted");
    Check.equal(2L, sender.outbound("a.b").emitted);
    // A batch that ends does not wait for what is behind the cut.
    nowUs = registry.clock.nowUs();
    registry.holdBacks.set(EDGE, nowUs + 60_000_000, HoldBacks.CLOSED, nowUs);
    registry.endings.set("t/j~a", "run", 0, nowUs, false, 1);
    probe.leave();
    Check.that(registry.clock.nowUs() < nowUs + 60_000_000, "at once");
    Check.equal(3L, sender.outbound("a.b").emitted);
  }

  public void aSenderThatIsHeldBackKeepsItsPace() {
    Registry registry = new Registry();
    Instance sender = registry.instance(new InstanceKey("t/j~a", "a", 0, 1));
    LeaveProbe probe = probe(registry, sender);
    long nowUs = registry.clock.nowUs();
    registry.holdBacks.set(EDGE, nowUs + 60_000_000, 1_000, nowUs);
    long beganNs = System.nanoTime();
    for (int i = 0; i < 200; i++) {
      probe.leave();
    }
    double tookMs = (System.nanoTime() - beganNs) / 1e6;
    // A thread that wakes up late makes up for it, within bounds.
    Check.that(tookMs >= 175, "a record per millisecond: " + tookMs);
  }
}
