// Tests of an instance's counters.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;

class InstanceTest {
  private static final long MS = 1_000_000;
  private final Instance instance = new Instance(new InstanceKey("j", "a", 2, 1));
  private final Inbound in = instance.inbound("src");
  private final Outbound out = instance.outbound("b");

  private void take(long atMs) {
    instance.take(in, atMs * 1000, atMs * 1000 + 500, atMs * MS, 0);
  }

  void aRowThatAFilterDropsCountsAsWork() {
    take(10);
    instance.mark(14 * MS);
    take(20);
    instance.mark(22 * MS);
    instance.sent(out, 3);
    instance.letGo(null, 0);
    JsonNode json = instance.toJson();
    Check.equal(2L, json.path("taken").asLong());
    Check.equal(2L, json.path("service").path("count").asLong());
    Check.close(6000, json.path("service").path("sum_us").asDouble(), 0);
    Check.equal(1L, json.path("out").path("b").path("emitted").asLong());
    Check.equal("{\"3\":1}", json.path("out").path("b").path("sent_to").toString());
  }

  void theLongestServiceTimeIsKept() {
    take(10);
    instance.finish(14 * MS);
    take(20);
    instance.finish(22 * MS);
    take(30);
    Check.close(4000, instance.toJson().path("service").path("max_us").asDouble(), 0);
  }

  void rejectedRecordsAreCounted() {
    take(10);
    instance.rejected();
    take(20);
    JsonNode json = instance.toJson();
    Check.equal(2L, json.path("taken").asLong());
    Check.equal(1L, json.path("rejected").asLong());
  }

  void theThreadOfALongRecordGivesWayUntilTheRecordIsDone() throws InterruptedException {
    Thread thread = Thread.currentThread();
    instance.hold(TaskProbe.current());
    long nowNs = System.nanoTime();
    instance.take(in, 1, 2, nowNs, 0);
    instance.toJson();
    Check.that(thread.getPriority() > ThreadPriority.STALLED, "the record is new");
    Thread.sleep(600);
    instance.toJson();
    Check.equal(ThreadPriority.STALLED, thread.getPriority());
    instance.finish(System.nanoTime());
    instance.toJson();
    Check.equal(ThreadPriority.TASK, thread.getPriority());
    thread.setPriority(Thread.NORM_PRIORITY);
  }

  void timeParkedIsNotService() {
    take(10);
    instance.mark(12 * MS);
    instance.parked(out, 3, 50 * MS);
    instance.mark(63 * MS);
    instance.parked(out, 4, 100 * MS);
    instance.letGo(null, 0);
    JsonNode json = instance.toJson();
    Check.close(3000, json.path("service").path("sum_us").asDouble(), 0);
    JsonNode edge = json.path("out").path("b");
    Check.equal(150 * MS, edge.path("parked_ns").asLong());
    Check.equal("{\"3\":50000000,\"4\":100000000}", edge.path("parked_at").toString());
  }

  void channelLatencyIsFromTheStamp() {
    take(10);
    take(20);
    JsonNode channel = instance.toJson().path("in").path("src").path("channel");
    Check.equal(2L, channel.path("count").asLong());
    Check.close(1000, channel.path("sum_us").asDouble(), 0);
  }

  void countersOutliveTheTask() {
    take(10);
    instance.mark(11 * MS);
    instance.letGo(null, 7);
    take(2000);
    instance.mark(2001 * MS);
    instance.letGo(null, 5);
    JsonNode json = instance.toJson();
    Check.equal(2L, json.path("taken").asLong());
    Check.equal(2L, json.path("service").path("count").asLong());
    Check.equal(12L, json.path("cpu_ns").asLong());
    Check.equal(0L, json.path("in").path("src").path("interarrival").path("count").asLong());
  }

  void latencyAtTheSinkIsAHistogram() {
    instance.delivered(instance.endToEnd(), 1, 25.0);
    Check.equal("{\"" + LogHistogram.key(25.0) + "\":1}",
        instance.toJson().path("e2e").path("buckets").toString());
  }

  void aRecordWaitsForTheNextWriteWhicheverRecordCausesIt() {
    take(10);
    instance.mark(12 * MS);
    take(20);
    instance.mark(23 * MS);
    instance.parked(out, 3, 50 * MS);
    instance.sent(out, 0);
    instance.sent(out, 0); // nobody waits for the second
    take(40);
    JsonNode writes = instance.toJson().path("writes");
    Check.equal(2L, writes.path("count").asLong());
    Check.close(13_000 + 3_000, writes.path("sum_us").asDouble(), 0);
  }

  private void takeSentAt(long sentMs, long atMs) {
    instance.take(in, sentMs * 1000, atMs * 1000, atMs * MS, 0);
  }

  void onlyARecordThatFoundNothingToDoTellsHowLongTheWayIs() {
    takeSentAt(10, 12);
    instance.mark(20 * MS);
    takeSentAt(15, 21); // sent while the first was worked on: it waited
    instance.mark(25 * MS);
    takeSentAt(30, 36);
    JsonNode json = instance.toJson().path("in").path("src");
    Check.close(14_000, json.path("channel").path("sum_us").asDouble(), 0);
    Check.close(2000, json.path("least_us").asDouble(), 0);
    // The mean moves a 64th of the way from 2 to 6 ms; above the least of 2 ms that was gathering.
    Check.close(62.5, json.path("gathered_us").asDouble(), 0.001);
  }

  void aRecordSentWhileTheInstanceWasHeldBackWaited() {
    takeSentAt(10, 11);
    instance.mark(12 * MS);
    instance.parked(out, 3, 5 * MS); // until now, by the real clock: long after the times of this test
    takeSentAt(14, 20);
    Check.close(1000, instance.toJson().path("in").path("src").path("least_us").asDouble(), 0);
    Check.close(0, instance.toJson().path("in").path("src").path("gathered_us").asDouble(), 0);
  }
}
