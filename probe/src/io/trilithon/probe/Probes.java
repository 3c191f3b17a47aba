// What each probe does, per record, on the task's thread.
package io.trilithon.probe;

import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

final class Probes {
  private Probes() {}

  /** A record enters an operator; always true, so that it can be a filter. */
  static boolean take(UTF8String edge, long stamp, long originUs) {
    TakeProbe probe = TaskProbe.current().take(edge);
    if (stamp != Stamp.UNCOUNTED) {
      probe.take(stamp, originUs);
    }
    return true;
  }

  /** Whether somebody looks at this edge, and has not seen enough yet. */
  static boolean watched(UTF8String edge) {
    return Registry.JVM.peeks.wants(edge);
  }

  /**
   * Shows a record to whoever looks at its edge; always true, so that it can be a filter. One that
   * cannot be written as text is left out, and that is no failure of the record.
   */
  static boolean show(UTF8String edge, UTF8String record, int task) {
    if (record == null) {
      Failures.reset();
    } else {
      Registry.JVM.peeks.show(edge, record, task, Registry.JVM.clock.wallUs());
    }
    return true;
  }

  /** A row that was broadcast is remembered and goes no further; others do. */
  static boolean remember(UTF8String operator, UTF8String key, UTF8String row) {
    if (row == null) {
      return true;
    }
    Instance instance = TaskProbe.current().mark(operator);
    if (key != null) {
      Registry.JVM.broadcast(instance.key).put(key, row);
    }
    instance.finish(System.nanoTime());
    return false;
  }

  /** The latest row of a key that was broadcast to this instance; null without one. */
  static UTF8String lookup(UTF8String operator, UTF8String key) {
    return key == null
        ? null : Registry.JVM.broadcast(TaskProbe.current().mark(operator).key).get(key);
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

  static int routeTo(UTF8String edge, int task) {
    RouteProbe probe = TaskProbe.current().route(edge);
    probe.sender.finish(System.nanoTime());
    return probe.routeTo(task);
  }

  /** The tasks that are used now: each gets a copy. */
  static ArrayData copies(UTF8String edge, int parallelism) {
    return new GenericArrayData(TaskProbe.current().route(edge).used(parallelism));
  }

  /**
   * The stamp of a copy for one task. An idle task gets it, too, so that it knows the row when it is
   * used; nobody counts that.
   */
  static long copy(UTF8String edge, int parallelism, int task, boolean counted) {
    RouteProbe probe = TaskProbe.current().route(edge);
    probe.sender.finish(System.nanoTime());
    if (!counted || !probe.uses(parallelism, task)) {
      return Stamp.UNCOUNTED;
    }
    probe.routeTo(task);
    return stamp();
  }

  /** The time at which a routed record leaves, after the gate, and its sender. */
  static long stamp() {
    return Stamp.pack(Registry.JVM.clock.nowUs(), Registry.JVM.ordinal());
  }

  /** Just before the write to an internal topic. */
  static long leave(UTF8String edge) {
    return TaskProbe.current().leave(edge).leave();
  }

  /** Just before the sink's write; always true. */
  static boolean sink(UTF8String operator, long originUs) {
    Instance instance = TaskProbe.current().mark(operator);
    double latencyMs = Registry.JVM.clock.sinceUs(originUs) / 1000.0;
    instance.delivered(instance.endToEnd(), System.nanoTime(), latencyMs);
    return true;
  }
}
