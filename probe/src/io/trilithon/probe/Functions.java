// The SQL functions as Spark calls them: one class each, with public static invoke methods.
package io.trilithon.probe;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** A parameter "any" is a column that Spark must evaluate before the call; its value is ignored. */
public final class Functions {
  private static final DataType TEXT = DataTypes.StringType;
  private static final DataType INT = DataTypes.IntegerType;
  private static final DataType LONG = DataTypes.LongType;
  private static final DataType BOOLEAN = DataTypes.BooleanType;
  private static final DataType DOUBLE = DataTypes.DoubleType;

  private Functions() {}

  /** take(edge, stamp, origin_us): the first expression of a stage, as a filter. */
  public static final class Take extends ProbeFunction {
    public Take() {
      super("take", BOOLEAN, TEXT, LONG, LONG);
    }

    public static boolean invoke(UTF8String edge, long stamp, long originUs) {
      return Probes.take(edge, stamp, originUs);
    }
  }

  /**
   * mark(operator, condition): around the condition of a filter; null counts as false, as in a
   * filter.
   */
  public static final class Mark extends ProbeFunction {
    public Mark() {
      super("mark", BOOLEAN, TEXT, BOOLEAN);
    }

    public static boolean invoke(UTF8String operator, boolean condition) {
      return Probes.mark(operator, condition);
    }
  }

  /**
   * reject(operator, rejected): around the condition that makes a record a dead letter; counts
   * those records.
   */
  public static final class Reject extends ProbeFunction {
    public Reject() {
      super("reject", BOOLEAN, TEXT, BOOLEAN);
    }

    public static boolean invoke(UTF8String operator, boolean rejected) {
      return Probes.reject(operator, rejected);
    }
  }

  /**
   * dead_letter(reason, at, source, value, max_chars, any): a record that failed, as JSON, with the
   * error that was caught last.
   */
  public static final class DeadLetter extends ProbeFunction {
    public DeadLetter() {
      super("dead_letter", TEXT, TEXT, TEXT, TEXT, TEXT, INT, BOOLEAN);
    }

    public static UTF8String invoke(UTF8String reason, UTF8String at, UTF8String source,
        UTF8String value, int maxChars, boolean any) {
      return Failures.letter(reason, at, source, value, maxChars);
    }
  }

  /**
   * emit(edge, task): the stamp of a routed record; the task is route's result, so the call comes
   * after the gate.
   */
  public static final class Emit extends ProbeFunction {
    public Emit() {
      super("emit", LONG, TEXT, INT);
    }

    public static long invoke(UTF8String edge, int task) {
      return Probes.stamp();
    }
  }

  /**
   * leave(edge, any): when a record leaves for another part of its job, µs of the wall clock; waits
   * while the edge is held back.
   */
  public static final class Leave extends ProbeFunction {
    public Leave() {
      super("leave", LONG, TEXT, TEXT);
    }

    public static long invoke(UTF8String edge, UTF8String any) {
      return Probes.leave(edge);
    }
  }

  /** sink(operator, origin_us, any): the last expression before a sink, as a filter. */
  public static final class Sink extends ProbeFunction {
    public Sink(DataType any) {
      super("sink", BOOLEAN, TEXT, LONG, any);
    }

    public static boolean invoke(UTF8String operator, long originUs, UTF8String any) {
      return Probes.sink(operator, originUs);
    }

    public static boolean invoke(UTF8String operator, long originUs, long any) {
      return Probes.sink(operator, originUs);
    }

    public static boolean invoke(UTF8String operator, long originUs, int any) {
      return Probes.sink(operator, originUs);
    }

    public static boolean invoke(UTF8String operator, long originUs, double any) {
      return Probes.sink(operator, originUs);
    }

    public static boolean invoke(UTF8String operator, long originUs, boolean any) {
      return Probes.sink(operator, originUs);
    }

    public static boolean invoke(UTF8String operator, long originUs, byte[] any) {
      return Probes.sink(operator, originUs);
    }

    public static boolean invoke(UTF8String operator, long originUs, InternalRow any) {
      return Probes.sink(operator, originUs);
    }
  }

  /**
   * route(edge, parallelism, any): the task that gets the record; parallelism is used until a table
   * is set.
   */
  public static final class Route extends ProbeFunction {
    public Route(DataType any) {
      super("route", INT, TEXT, INT, any);
    }

    public static int invoke(UTF8String edge, int parallelism, UTF8String any) {
      return Probes.route(edge, parallelism);
    }

    public static int invoke(UTF8String edge, int parallelism, long any) {
      return Probes.route(edge, parallelism);
    }

    public static int invoke(UTF8String edge, int parallelism, int any) {
      return Probes.route(edge, parallelism);
    }

    public static int invoke(UTF8String edge, int parallelism, double any) {
      return Probes.route(edge, parallelism);
    }

    public static int invoke(UTF8String edge, int parallelism, float any) {
      return Probes.route(edge, parallelism);
    }

    public static int invoke(UTF8String edge, int parallelism, boolean any) {
      return Probes.route(edge, parallelism);
    }

    public static int invoke(UTF8String edge, int parallelism, byte[] any) {
      return Probes.route(edge, parallelism);
    }

    public static int invoke(UTF8String edge, int parallelism, Decimal any) {
      return Probes.route(edge, parallelism);
    }

    public static int invoke(UTF8String edge, int parallelism, ArrayData any) {
      return Probes.route(edge, parallelism);
    }

    public static int invoke(UTF8String edge, int parallelism, MapData any) {
      return Probes.route(edge, parallelism);
    }

    public static int invoke(UTF8String edge, int parallelism, InternalRow any) {
      return Probes.route(edge, parallelism);
    }
  }

  /**
   * route_by_key(edge, parallelism, hash): the hash is of the output's key, so the call comes after
   * the work.
   */
  public static final class RouteByKey extends ProbeFunction {
    public RouteByKey() {
      super("route_by_key", INT, TEXT, INT, LONG);
    }

    public static int invoke(UTF8String edge, int parallelism, long hash) {
      return Probes.routeByKey(edge, parallelism, hash);
    }
  }

  /**
   * route_to(edge, task): the record goes to this task, which has the state of its key, as soon as
   * that has credit.
   */
  public static final class RouteTo extends ProbeFunction {
    public RouteTo() {
      super("route_to", INT, TEXT, INT);
    }

    public static int invoke(UTF8String edge, int task) {
      return Probes.routeTo(edge, task);
    }
  }

  /** copies(edge, parallelism, any): the tasks that are used, each of which gets a copy. */
  public static final class Copies extends ProbeFunction {
    public Copies() {
      super("copies", DataTypes.createArrayType(INT, false), TEXT, INT, TEXT);
    }

    public static ArrayData invoke(UTF8String edge, int parallelism, UTF8String any) {
      return Probes.copies(edge, parallelism);
    }
  }

  /** copy(edge, parallelism, task, counted): the stamp of a copy for one task, behind its gate. */
  public static final class Copy extends ProbeFunction {
    public Copy() {
      super("copy", LONG, TEXT, INT, INT, BOOLEAN);
    }

    public static long invoke(UTF8String edge, int parallelism, int task, boolean counted) {
      return Probes.copy(edge, parallelism, task, counted);
    }
  }

  /** watched(edge): whether somebody looks at this edge; a record is written as text only then. */
  public static final class Watched extends ProbeFunction {
    public Watched() {
      super("watched", BOOLEAN, TEXT);
    }

    public static boolean invoke(UTF8String edge) {
      return Probes.watched(edge);
    }
  }

  /** show(edge, record, task): shows a record of a watched edge, as a filter that lets all pass. */
  public static final class Show extends ProbeFunction {
    public Show() {
      super("show", BOOLEAN, TEXT, TEXT, INT);
    }

    public static boolean invoke(UTF8String edge, UTF8String record, int task) {
      return Probes.show(edge, record, task);
    }
  }

  /** remember(operator, key, row): a filter that keeps what was broadcast and lets the rest pass. */
  public static final class Remember extends ProbeFunction {
    public Remember() {
      super("remember", BOOLEAN, TEXT, TEXT, TEXT);
    }

    public static boolean invoke(UTF8String operator, UTF8String key, UTF8String row) {
      return Probes.remember(operator, key, row);
    }
  }

  /** lookup(operator, key): the latest row of the key that was broadcast; null without one. */
  public static final class Lookup extends ProbeFunction {
    public Lookup() {
      super("lookup", TEXT, TEXT, TEXT);
    }

    @Override
    public boolean isResultNullable() {
      return true;
    }

    public static UTF8String invoke(UTF8String operator, UTF8String key) {
      return Probes.lookup(operator, key);
    }
  }

  /** work(ms): burns CPU. */
  public static final class Work extends ProbeFunction {
    public Work() {
      super("work", DOUBLE, DOUBLE);
    }

    public static double invoke(double ms) {
      return Workload.work(ms);
    }
  }

  /** wait(ms): sleeps. */
  public static final class Wait extends ProbeFunction {
    public Wait() {
      super("wait", DOUBLE, DOUBLE);
    }

    public static double invoke(double ms) {
      return Workload.pause(ms);
    }
  }
}
