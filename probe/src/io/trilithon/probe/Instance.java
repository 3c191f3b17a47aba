// The cumulative counters of one instance on one executor; they outlive its tasks, which are new in
// each batch.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;

/**
 * Written by the thread of the task that holds the instance, read by the reporter. An instance that
 * moves to another executor goes on counting from 0 there, and the driver adds the counters up (a
 * grow-only counter per executor): nothing is handed over, so nothing can get lost at a boundary.
 */
final class Instance {
  private static final int READ_TRIES = 3;
  /** A record that takes longer is worth reporting. */
  private static final long REPORTED_STALL_NS = 2_000_000_000L;
  /**
   * The thread of a record that takes longer gets the lowest priority until the record is done.
   * Reports look once a second: the second one that sees the record lowers it.
   */
  private static final long LONG_RECORD_NS = 500_000_000L;

  final InstanceKey key;
  private final SeqLock lock = new SeqLock();
  private final Moments service = new Moments();
  private volatile List<Inbound> inbound = List.of();
  private volatile List<Outbound> outbound = List.of();
  private volatile LogHistogram endToEnd;
  private volatile TaskProbe holder;
  private long taken;
  // Read-write latency: records after which something was written, and those still waiting for it.
  private long writeWaits;
  private long writeWaitNs;
  private long unwritten;
  private long unwrittenNs;
  private long rejected;
  private long cpuNs;
  private long openedNs;
  private long lastMarkNs;
  private long parkedInRecordNs;
  private long parkedAtMarkNs;
  private long parkedUntilNs;
  private long originUs;
  private boolean working;
  private final Stall stall = new Stall();

  Instance(InstanceKey key) {
    this.key = key;
  }

  /** Takes a record: the previous one is finished and its service time known. */
  void take(Inbound edge, long stampUs, long nowUs, long nowNs, long origin) {
    lock.beginWrite();
    closeRecord();
    long finishedNs = Math.max(Math.max(lastMarkNs, parkedUntilNs), openedNs);
    taken++;
    unwritten++;
    unwrittenNs += nowNs;
    openedNs = nowNs;
    lastMarkNs = 0;
    parkedInRecordNs = 0;
    parkedAtMarkNs = 0;
    originUs = origin;
    working = true;
    if (stampUs > 0) {
      long channelUs = Math.max(0, nowUs - stampUs);
      edge.took(channelUs, nowNs - 1000 * channelUs > finishedNs);
      edge.arrivals.add(stampUs);
    }
    lock.endWrite();
  }

  /**
   * Marks come before the gate: time parked after a record's last mark is outside its service time
   * anyway.
   */
  void mark(long nowNs) {
    lastMarkNs = nowNs;
    parkedAtMarkNs = parkedInRecordNs;
  }

  /** The last step of a row: it was dropped, sent or delivered. */
  void finish(long nowNs) {
    mark(nowNs);
    working = false;
  }

  void parked(Outbound edge, int task, long ns) {
    lock.beginWrite();
    edge.parkedNs += ns;
    edge.parkedAtNs[task] += ns;
    parkedInRecordNs += ns;
    parkedUntilNs = System.nanoTime();
    lock.endWrite();
  }

  /** The thread was parked before an internal topic. */
  void heldBack(Outbound edge, long ns) {
    lock.beginWrite();
    edge.parkedNs += ns;
    parkedInRecordNs += ns;
    parkedUntilNs = System.nanoTime();
    lock.endWrite();
  }

  /** A record left for another part of the job. */
  void left(Outbound edge) {
    lock.beginWrite();
    edge.emitted++;
    written();
    lock.endWrite();
  }

  void rejected() {
    lock.beginWrite();
    rejected++;
    lock.endWrite();
  }

  void forced(Outbound edge) {
    lock.beginWrite();
    edge.forced++;
    lock.endWrite();
  }

  void sent(Outbound edge, int task) {
    lock.beginWrite();
    edge.emitted++;
    edge.sentTo[task]++;
    written();
    lock.endWrite();
  }

  void delivered(LogHistogram histogram, long nowNs, double latencyMs) {
    lock.beginWrite();
    finish(nowNs);
    histogram.addMs(latencyMs);
    written();
    lock.endWrite();
  }

  /** A task begins to run the instance; the reporter asks it for the CPU time of its thread. */
  synchronized void hold(TaskProbe task) {
    holder = task;
    stall.reset();
  }

  synchronized void letGo(TaskProbe task, long taskCpuNs) {
    lock.beginWrite();
    closeRecord();
    openedNs = 0;
    // What is not written now does not wait for the next task, which may come much later.
    unwritten = 0;
    unwrittenNs = 0;
    working = false;
    inbound.forEach(edge -> edge.arrivals.flush());
    cpuNs += taskCpuNs;
    lock.endWrite();
    if (holder == task) {
      holder = null;
    }
  }

  /**
   * Service time: from taking a record to its last mark, dropped rows included, time parked at the
   * gate excluded.
   */
  private void closeRecord() {
    if (openedNs > 0 && lastMarkNs >= openedNs) {
      service.add(Math.max(0, lastMarkNs - openedNs - parkedAtMarkNs) / 1000.0);
    }
  }

  /**
   * Ends the wait of all records since the last write, at the last mark: parking is no work. The sum
   * of times may overflow, and so does what it is taken from: the difference is right.
   */
  private void written() {
    if (unwritten > 0 && lastMarkNs >= openedNs) {
      writeWaits += unwritten;
      writeWaitNs += unwritten * lastMarkNs - unwrittenNs;
      unwritten = 0;
      unwrittenNs = 0;
    }
  }

  Inbound inbound(String from) {
    for (Inbound edge : inbound) {
      if (edge.from.equals(from)) {
        return edge;
      }
    }
    Inbound edge = new Inbound(from);
    List<Inbound> more = new ArrayList<>(inbound);
    more.add(edge);
    inbound = more;
    return edge;
  }

  Outbound outbound(String to) {
    for (Outbound edge : outbound) {
      if (edge.to.equals(to)) {
        return edge;
      }
    }
    Outbound edge = new Outbound(to);
    List<Outbound> more = new ArrayList<>(outbound);
    more.add(edge);
    outbound = more;
    return edge;
  }

  LogHistogram endToEnd() {
    if (endToEnd == null) {
      endToEnd = new LogHistogram();
    }
    return endToEnd;
  }

  private long stalledNs(long cpuNs) {
    long progressNs = Math.max(openedNs, Math.max(lastMarkNs, parkedUntilNs));
    return stall.sample(working, progressNs, System.nanoTime(), cpuNs);
  }

  synchronized ObjectNode toJson() {
    TaskProbe task = holder;
    long liveCpuNs = task == null ? 0 : task.cpuNsOf(this);
    long stalledNs = task == null ? 0 : stalledNs(liveCpuNs);
    if (task != null) {
      task.longRecord(stalledNs >= LONG_RECORD_NS);
    }
    return lock.read(READ_TRIES, () -> {
      ObjectNode json = Json.object().put("job", key.job()).put("operator", key.operator())
          .put("index", key.index())
          .put("incarnation", key.incarnation()).put("active", task != null).put("taken", taken)
          .put("rejected", rejected).put("cpu_ns", cpuNs + liveCpuNs);
      json.set("service", service.toJson().put("max_us", service.largest));
      json.putObject("writes").put("count", writeWaits).put("sum_us", writeWaitNs / 1000.0);
      ObjectNode in = json.putObject("in");
      inbound.forEach(edge -> in.set(edge.from, edge.toJson()));
      ObjectNode out = json.putObject("out");
      outbound.forEach(edge -> out.set(edge.to, edge.toJson()));
      if (stalledNs >= REPORTED_STALL_NS) {
        json.put("stalled_us", stalledNs / 1000).put("origin_us", originUs);
      }
      LogHistogram histogram = endToEnd;
      if (histogram != null) {
        json.set("e2e", histogram.toJson());
      }
      return json;
    });
  }
}
