// Tests of the bounds on what functions make: of the rewriting, and of the functions.
package io.trilithon.probe;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

class BoundsTest {
  private static final DataType TEXT = DataTypes.StringType;
  private static final DataType INT = DataTypes.IntegerType;
  private static final DataType LONG = DataTypes.LongType;

  private static String rewritten(String text) {
    return rewritten(text, true);
  }

  private static String rewritten(String text, boolean constructors) {
    return Bounds.apply(CatalystSqlParser$.MODULE$.parseExpression(text), "tri", constructors)
        .toString().replace("'", "").replace("distinct ", "");
  }

  private static Object call(String name, DataType[] types, Object... values) {
    StructType given = new StructType();
    for (int i = 0; i < types.length; i++) {
      given = given.add("c" + i, types[i]);
    }
    InternalRow row = new GenericInternalRow(values);
    ScalarFunction<?> bound = (ScalarFunction<?>) new ProbeCatalog()
        .loadFunction(Identifier.of(new String[0], name)).bind(given);
    return bound.produceResult(row);
  }

  private static UTF8String text(int bytes) {
    return UTF8String.blankString(bytes);
  }

  void callsThatGrowAreBounded() {
    Check.equal("tri.bounded_repeat(s, 3)", rewritten("repeat(s, 3)"));
    Check.equal("tri.bounded(LPAD(s, tri.at_most(n), x))", rewritten("LPAD(s, n, 'x')"));
    Check.equal("sequence(1, tri.sequence_stop(1, n))", rewritten("sequence(1, n)"));
    Check.equal("tri.bounded(concat(a, b))", rewritten("a || b"));
    Check.equal("upper(s)", rewritten("upper(s)"));
  }

  void callsInsideLambdasAreBoundedToo() {
    String text = rewritten("aggregate(sequence(1, 30), s, (a, x) -> concat(a, a))");
    Check.that(text.contains("tri.fold_step(tri.bounded(concat("), text);
    Check.that(text.contains("tri.sequence_stop(1, 30)"), text);
    Check.that(text.contains("tri.fold_begin(s)"), text);
    Check.that(text.startsWith("tri.fold_end("), text);
    String mapped = rewritten("transform(a, x -> x)");
    Check.that(mapped.contains("lambdafunction(tri.bounded("), mapped);
  }

  void whatPutsValuesTogetherIsBounded() {
    Check.equal("tri.bounded(array(a, a, a))", rewritten("array(a, a, a)"));
    Check.equal("tri.bounded(named_struct(x, a, y, a))", rewritten("named_struct('x', a, 'y', a)"));
    Check.equal("tri.bounded(map(k, a, l, a))", rewritten("map('k', a, 'l', a)"));
    Check.equal("tri.bounded(map_from_arrays(a, a))", rewritten("map_from_arrays(a, a)"));
    Check.equal("tri.bounded(array(tri.bounded(array(a, a)), 1))",
        rewritten("array(array(a, a), 1)"));
    for (String struct : new String[] {"struct(a, a AS b)", "STRUCT(a, 1)", "(a, b)"}) {
      String text = rewritten(struct);
      Check.that(text.startsWith("tri.bounded(") && text.contains("struct("), text);
    }
    String mapped = rewritten("transform(a, x -> struct(x, x))");
    Check.that(mapped.contains("lambdafunction(tri.bounded(tri.bounded("), mapped);
  }

  void constantsThatSomeFunctionsRequireStayConstants() {
    Check.equal("from_json(tri.parsable(s, 1), a INT, map(mode, FAILFAST))",
        rewritten("from_json(s, 'a INT', map('mode', 'FAILFAST'))"));
    Check.equal("approx_percentile(n, array(0.5, (1 / 4)))",
        rewritten("approx_percentile(n, array(0.5, 1 / 4))"));
    Check.equal("array()", rewritten("array()"));
    Check.equal("tri.bounded(array(upper(x)))", rewritten("array(upper('x'))"));
  }

  void inAnAggregateValuesArePutTogetherAsTheyAre() {
    String text = rewritten("max(struct(at, v))", false);
    Check.that(!text.contains("tri."), text);
    Check.equal("max(array(at, tri.bounded(concat(a, b))))",
        rewritten("max(array(at, concat(a, b)))", false));
  }

  void aStructCountsWithEverythingInIt() {
    StructType pair = new StructType().add("a", TEXT).add("b", LONG);
    InternalRow row = new GenericInternalRow(new Object[] {text(1000), 1L});
    Check.equal(2 * 8 + 1000 + 8L, Budget.sizeOf(row, pair));
    TaskProbe.budget().reset();
    StructType wide = new StructType();
    Object[] values = new Object[17];
    for (int i = 0; i < values.length; i++) {
      wide = wide.add("f" + i, TEXT);
      values[i] = text(1 << 20);
    }
    DataType[] types = {wide};
    Check.refused("more than 16777216 bytes of one record",
        () -> call("bounded", types, new GenericInternalRow(values)));
  }

  void aTextIsRepeatedUpToTheLimit() {
    DataType[] types = {TEXT, INT};
    TaskProbe.budget().reset();
    Check.equal(16 << 20, ((UTF8String) call("bounded_repeat", types, text(1 << 10), 16 << 10))
        .numBytes());
    Check.refused("more than 16777216 bytes",
        () -> call("bounded_repeat", types, text(1 << 10), (16 << 10) + 1));
    TaskProbe.budget().reset();
    Check.equal(0, ((UTF8String) call("bounded_repeat", types, text(5), -1)).numBytes());
    Check.equal(null, call("bounded_repeat", types, null, 2));
  }

  void aReplacementIsCheckedBeforeItIsMade() {
    TaskProbe.budget().reset();
    DataType[] types = {TEXT, TEXT, TEXT};
    Check.equal(UTF8String.fromString("abab"),
        call("bounded_replace", types, UTF8String.fromString("xx"), UTF8String.fromString("x"),
            UTF8String.fromString("ab")));
    Check.refused("more than 16777216 bytes",
        () -> call("bounded_replace", types, text(1 << 16), text(1), text(1 << 16)));
    Check.refused("more than 16777216 bytes",
        () -> call("replaceable", new DataType[] {TEXT, TEXT}, text(1 << 16), text(1 << 16)));
  }

  void structsInAJsonTextAreCountedBeforeTheyAreMade() {
    Check.equal("from_json(tri.parsable(s, 4), array<struct<a INT, b INT>>)",
        rewritten("from_json(s, 'array<struct<a INT, b INT>>')"));
    Check.equal("FROM_JSON(tri.parsable(s, 1), v INT)", rewritten("FROM_JSON(s, 'v INT')"));
    DataType[] types = {TEXT, INT};
    UTF8String many = UTF8String.fromString("[" + "{},".repeat(10_000) + "{}]");
    Check.equal(many, call("parsable", types, many, 100));
    Check.refused("more than 16777216 bytes", () -> call("parsable", types, many, 300));
    Check.equal(null, call("parsable", types, null, 300));
  }

  void aSequenceHasTheLengthOfItsSteps() {
    DataType[] numbers = {LONG, LONG};
    TaskProbe.budget().reset();
    Check.equal(2097152L, call("sequence_stop", numbers, 1L, 2097152L));
    TaskProbe.budget().reset();
    Check.refused("more than 2097152", () -> call("sequence_stop", numbers, 1L, 2097153L));
    Check.refused("more than 2097152",
        () -> call("sequence_stop", numbers, Long.MIN_VALUE, Long.MAX_VALUE));
    Check.equal(1_000_000_000L, call("sequence_stop", new DataType[] {LONG, LONG, LONG},
        0L, 1_000_000_000L, 1000L));
    Check.equal(null, call("sequence_stop", numbers, 1L, null));
    DataType[] times = {DataTypes.TimestampType, DataTypes.TimestampType,
        DataTypes.createDayTimeIntervalType()};
    Check.refused("more than 2097152",
        () -> call("sequence_stop", times, 0L, 86_400_000_000L, 1000L));
    Check.equal(86_400_000_000L, call("sequence_stop", times, 0L, 86_400_000_000L, 1_000_000L));
  }

  void aCountIsBoundedAndATextIsNone() {
    Check.refused("2000000000 characters or elements",
        () -> call("at_most", new DataType[] {INT}, 2_000_000_000));
    Check.equal(7, call("at_most", new DataType[] {INT}, 7));
    Check.equal(text(3), call("at_most", new DataType[] {TEXT}, text(3)));
  }

  void aFormatMayNotAskForAHugeWidth() {
    DataType[] types = {TEXT};
    UTF8String format = UTF8String.fromString("%1$08d %s");
    Check.equal(format, call("bounded_format", types, format));
    Check.refused("more than 2097152", () -> call("bounded_format", types,
        UTF8String.fromString("%2000000000d")));
    Check.equal("tri.bounded(printf(tri.bounded_format(f), n))", rewritten("printf(f, n)"));
  }

  void anArrayCountsWithEverythingInIt() {
    DataType texts = DataTypes.createArrayType(TEXT);
    Check.equal(8 * 2 + 30L,
        Budget.sizeOf(new GenericArrayData(new Object[] {text(10), text(20)}), texts));
    Check.equal(8 * 3L, Budget.sizeOf(new GenericArrayData(new long[3]),
        DataTypes.createArrayType(LONG)));
  }

  void whatIsMadeOfOneRecordAddsUp() {
    Budget budget = new Budget();
    budget.use(10 << 20);
    Check.refused("more than 16777216 bytes of one record", () -> budget.use(10 << 20));
    budget.reset();
    budget.use(10 << 20);
  }

  void ofAFoldOnlyTheLatestResultCounts() {
    Budget budget = new Budget();
    budget.use(1 << 20);
    budget.beginFold();
    for (int i = 0; i < 100; i++) {
      budget.use(5 << 20);
      budget.foldTo(5 << 20);
    }
    budget.endFold(5 << 20);
    budget.use(9 << 20);
    Check.refused("more than 16777216 bytes of one record", () -> budget.use(2 << 20));
  }
}
