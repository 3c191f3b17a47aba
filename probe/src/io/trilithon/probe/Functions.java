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
   * origin(operator, any): the origin time of the record taken last, for the output of an
   * aggregation.
   */
  public static final class Origin extends ProbeFunction {
    public Origin() {
      super("origin", LONG, TEXT, LONG);
    }

    public static long invoke(UTF8String operator, long any) {
      return Probes.origin(operator);
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
