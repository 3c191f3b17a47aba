// The functions that a compiled expression calls in place of, or around, those that can make much
// of little.
package io.trilithon.probe;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.YearMonthIntervalType;
import org.apache.spark.unsafe.types.CalendarInterval;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Without a static invoke method Spark calls {@code produceResult}, which gets nulls as they are.
 */
public final class BoundedFunctions {
  private static final DataType TEXT = DataTypes.StringType;
  private static final DataType INT = DataTypes.IntegerType;
  private static final long DAY_US = 86_400_000_000L;
  /** The shortest month: a step of a month is at least as long. */
  private static final long MONTH_US = 28 * DAY_US;

  private BoundedFunctions() {}

  private abstract static class Bounded extends ProbeFunction {
    Bounded(String name, DataType result, DataType... inputs) {
      super(name, result, inputs);
    }

    @Override
    public boolean isResultNullable() {
      return true;
    }

    /** What produceResult returns, which Spark wants to be a method of each function's own class. */
    final Object nullable(InternalRow input) {
      for (int i = 0; i < inputTypes().length; i++) {
        if (input.isNullAt(i)) {
          return whenNull(input);
        }
      }
      return produce(input);
    }

    Object whenNull(InternalRow input) {
      return null;
    }

    abstract Object produce(InternalRow input);
  }

  /** What becomes of a value: its size is added, or replaces that of a fold's previous step. */
  enum Counted { RESULT, FOLD_BEGIN, FOLD_STEP, FOLD_END }

  /** bounded(value), fold_begin(value), fold_step(value), fold_end(value): the value, counted. */
  static final class Result extends Bounded {
    private final DataType type;
    private final boolean varies;
    private final Counted counted;

    Result(StructType given, Counted counted) {
      super(counted.name(), given.apply(0).dataType(), given.apply(0).dataType());
      type = given.apply(0).dataType();
      varies = Budget.varies(type);
      this.counted = counted;
    }

    @Override
    public Object produceResult(InternalRow input) {
      Object value = input.isNullAt(0) ? null : input.get(0, type);
      long bytes = varies ? Budget.sizeOf(value, type) : 0;
      Budget budget = TaskProbe.budget();
      switch (counted) {
        case RESULT -> budget.use(bytes);
        case FOLD_BEGIN -> budget.beginFold();
        case FOLD_STEP -> budget.foldTo(bytes);
        default -> budget.endFold(bytes);
      }
      return value;
    }

    @Override
    Object produce(InternalRow input) {
      return produceResult(input);
    }
  }

  /**
   * bounded(text): Spark generates no code for a call without a static method, evaluates what it is
   * around by reflection, and cuts the code of the stage in two.
   */
  public static final class TextResult extends Bounded {
    TextResult() {
      super("bounded_text", TEXT, TEXT);
    }

    public static UTF8String invoke(UTF8String value) {
      if (value != null) {
        TaskProbe.budget().use(value.numBytes());
      }
      return value;
    }

    @Override
    public Object produceResult(InternalRow input) {
      return nullable(input);
    }

    @Override
    Object produce(InternalRow input) {
      return invoke(input.getUTF8String(0));
    }
  }

  /** at_most(count): the count, or an error if it is too large; a text is returned as it is. */
  static final class AtMost extends Bounded {
    private final DataType type;

    AtMost(StructType given) {
      super("at_most", given.apply(0).dataType(), given.apply(0).dataType());
      type = given.apply(0).dataType();
    }

    @Override
    public Object produceResult(InternalRow input) {
      return nullable(input);
    }

    @Override
    Object produce(InternalRow input) {
      Object value = input.get(0, type);
      if (value instanceof Number number) {
        Budget.checkCount(Math.abs(number.longValue()));
      }
      return value;
    }
  }

  /** bounded_format(format): the format, if no width or precision in it is too large. */
  static final class Format extends Bounded {
    private static final Pattern NUMBER = Pattern.compile("\\d+");
    private static final int MAX_DIGITS = 9;

    Format(StructType given) {
      super("bounded_format", TEXT, TEXT);
    }

    @Override
    public Object produceResult(InternalRow input) {
      return nullable(input);
    }

    @Override
    Object produce(InternalRow input) {
      Matcher numbers = NUMBER.matcher(input.getUTF8String(0).toString());
      while (numbers.find()) {
        String digits = numbers.group();
        Budget.checkCount(digits.length() > MAX_DIGITS ? Long.MAX_VALUE : Long.parseLong(digits));
      }
      return input.getUTF8String(0);
    }
  }

  /** bounded_repeat(text, times). */
  static final class Repeat extends Bounded {
    Repeat(StructType given) {
      super("bounded_repeat", TEXT, TEXT, INT);
    }

    @Override
    public Object produceResult(InternalRow input) {
      return nullable(input);
    }

    @Override
    Object produce(InternalRow input) {
      UTF8String text = input.getUTF8String(0);
      TaskProbe.budget().use((long) text.numBytes() * Math.max(0, input.getInt(1)));
      return text.repeat(input.getInt(1));
    }
  }

  /** bounded_replace(text, search, replacement). */
  static final class Replace extends Bounded {
    Replace(StructType given) {
      super("bounded_replace", TEXT, given.size() == 2
          ? new DataType[] {TEXT, TEXT} : new DataType[] {TEXT, TEXT, TEXT});
    }

    @Override
    public Object produceResult(InternalRow input) {
      return nullable(input);
    }

    @Override
    Object produce(InternalRow input) {
      UTF8String text = input.getUTF8String(0);
      UTF8String search = input.getUTF8String(1);
      UTF8String replacement =
          inputTypes().length == 2 ? UTF8String.EMPTY_UTF8 : input.getUTF8String(2);
      long hits = search.numBytes() == 0 ? 0 : text.numBytes() / search.numBytes();
      Budget.check(text.numBytes() + hits * replacement.numBytes());
      UTF8String result = text.replace(search, replacement);
      TaskProbe.budget().use(result.numBytes());
      return result;
    }
  }

  /** replaceable(text, replacement): the text, if a regular expression may be replaced in it. */
  static final class Replaceable extends Bounded {
    Replaceable(StructType given) {
      super("replaceable", TEXT, TEXT, TEXT);
    }

    @Override
    public Object produceResult(InternalRow input) {
      return nullable(input);
    }

    @Override
    Object produce(InternalRow input) {
      UTF8String text = input.getUTF8String(0);
      Budget.check((text.numBytes() + 1L) * (input.getUTF8String(1).numBytes() + 1L));
      return text;
    }

    @Override
    Object whenNull(InternalRow input) {
      return input.isNullAt(0) ? null : input.getUTF8String(0);
    }
  }

  /**
   * parsable(text, fields): the JSON text, if the structs in it are not too many: each {@code {}}
   * makes one with all fields of its type, of which {@code fields} is the most there can be. It uses
   * nothing of the budget, so that it may stand in the argument of an aggregate function.
   */
  static final class Parsable extends Bounded {
    Parsable(StructType given) {
      super("parsable", TEXT, TEXT, INT);
    }

    @Override
    public boolean isDeterministic() {
      return true;
    }

    @Override
    public Object produceResult(InternalRow input) {
      return nullable(input);
    }

    @Override
    Object produce(InternalRow input) {
      UTF8String text = input.getUTF8String(0);
      long structs = 0;
      for (int i = 0; i < text.numBytes(); i++) {
        structs += text.getByte(i) == '{' ? 1 : 0;
      }
      Budget.check(text.numBytes() + structs * Long.BYTES * (1L + input.getInt(1)));
      return text;
    }
  }

  /** sequence_stop(start, stop[, step]): the stop of a sequence that is not too long. */
  static final class SequenceStop extends Bounded {
    private final DataType start;
    private final DataType stop;
    private final DataType step;

    SequenceStop(StructType given) {
      super("sequence_stop", given.apply(1).dataType(), types(given));
      start = given.apply(0).dataType();
      stop = given.apply(1).dataType();
      step = given.size() == 2 ? null : given.apply(2).dataType();
    }

    private static DataType[] types(StructType given) {
      DataType[] types = new DataType[given.size()];
      for (int i = 0; i < types.length; i++) {
        types[i] = given.apply(i).dataType();
      }
      return types;
    }

    @Override
    public Object produceResult(InternalRow input) {
      return nullable(input);
    }

    @Override
    Object produce(InternalRow input) {
      double from = position(input.get(0, start), start);
      double to = position(input.get(1, stop), stop);
      double by = step == null ? isNumber(stop) ? 1 : DAY_US : length(input.get(2, step), step);
      if (by > 0) {
        double count = Math.abs(to - from) / by + 1;
        Budget.checkCount((long) Math.min(count, Long.MAX_VALUE));
        TaskProbe.budget().use((long) (count * Long.BYTES));
      }
      return input.get(1, stop);
    }

    @Override
    Object whenNull(InternalRow input) {
      return input.isNullAt(1) ? null : input.get(1, stop);
    }

    private static boolean isNumber(DataType type) {
      return type instanceof LongType || type instanceof IntegerType || type instanceof ShortType
          || type instanceof ByteType;
    }

    /** A number as it is, a date or time in microseconds. */
    private static double position(Object value, DataType type) {
      double number = ((Number) value).doubleValue();
      return type instanceof DateType ? number * DAY_US : number;
    }

    /** The length of a step, at least; 0 for one that Spark refuses. */
    private static double length(Object value, DataType type) {
      if (value instanceof CalendarInterval interval) {
        return Math.abs(interval.months * (double) MONTH_US + interval.days * (double) DAY_US
            + interval.microseconds);
      }
      double number = Math.abs(((Number) value).doubleValue());
      if (type instanceof YearMonthIntervalType) {
        return number * MONTH_US;
      }
      return type instanceof DayTimeIntervalType || isNumber(type) ? number : 0;
    }
  }
}
