// What each probe does, per record, on the task's thread.
package io.trilithon.probe;

import org.apache.spark.unsafe.types.UTF8String;

final class Probes {
  private Probes() {}

  /** A record enters an operator; always true, so that it can be a filter. */
  static boolean take(UTF8String edge, long stamp, long originUs) {
    TaskProbe.current().take(edge).take(stamp, originUs);
    return true;
  }

  /**
   * A step of the work is done; returns a filter's condition unchanged, so that dropped rows count
   * as work.
   */
  static boolean mark(UTF8String operator, boolean condition) {
    Instance instance = TaskProbe.current().mark(operator);
    if (condition) {
      instance.mark(System.nanoTime());
    } else {
      instance.finish(System.nanoTime());
    }
    return condition;
  }

  /** The operator cannot process the record: counts it; the record goes on as a dead letter. */
  static boolean reject(UTF8String operator, boolean rejected) {
    if (rejected) {
      TaskProbe.current().mark(operator).rejected();
    }
    return rejected;
  }

  /**
   * The operator's work is done: the record goes to one of the receiver's tasks as soon as that has
   * credit.
   */
  static int route(UTF8String edge, int parallelism) {
    RouteProbe probe = TaskProbe.current().route(edge);
    probe.sender.finish(System.nanoTime());
    return probe.route(parallelism);
  }

  static int routeByKey(UTF8String edge, int parallelism, long hash) {
    RouteProbe probe = TaskProbe.current().route(edge);
    probe.sender.finish(System.nanoTime());
    return probe.routeByKey(parallelism, hash);
  }

  /** The time at which a routed record leaves, after the gate, and its sender. */
  static long stamp() {
    return Stamp.pack(Registry.JVM.clock.nowUs(), Registry.JVM.ordinal());
  }

  /** Just before the sink's write; always true. */
  static boolean sink(UTF8String operator, long originUs) {
    Instance instance = TaskProbe.current().mark(operator);
    double latencyMs = Registry.JVM.clock.sinceUs(originUs) / 1000.0;
    instance.delivered(instance.endToEnd(), System.nanoTime(), latencyMs);
    return true;
  }

  /** The origin time of the record taken last: an aggregation drops the column. */
  static long origin(UTF8String operator) {
    return TaskProbe.current().mark(operator).originUs();
  }
}
