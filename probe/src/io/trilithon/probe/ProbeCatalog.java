// The catalog of the probe's SQL functions:
// spark.sql.catalog.<name>=io.trilithon.probe.ProbeCatalog.
package io.trilithon.probe;

import static java.util.Map.entry;

import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public final class ProbeCatalog implements FunctionCatalog {
  private static final Map<String, Entry> ENTRIES = new TreeMap<>(Map.ofEntries(
      entry("take", new Entry("take(edge, stamp, origin_us)", 3, any -> new Functions.Take())),
      entry("mark", new Entry("mark(operator, condition)", 2, any -> new Functions.Mark())),
      entry("reject", new Entry("reject(operator, rejected)", 2, any -> new Functions.Reject())),
      entry("dead_letter", new Entry(
          "dead_letter(reason, at, source, value, max_chars, any)", 6,
          any -> new Functions.DeadLetter())),
      entry("emit", new Entry("emit(edge, task)", 2, any -> new Functions.Emit())),
      entry("leave", new Entry("leave(edge, any)", 2, any -> new Functions.Leave())),
      entry("sink", new Entry("sink(operator, origin_us, any)", 3, Functions.Sink::new)),
      entry("route", new Entry("route(edge, parallelism, any)", 3, Functions.Route::new)),
      entry("route_by_key", new Entry("route_by_key(edge, parallelism, hash)", 3,
          any -> new Functions.RouteByKey())),
      entry("route_to", new Entry("route_to(edge, task)", 2, any -> new Functions.RouteTo())),
      entry("copies", new Entry("copies(edge, parallelism, any)", 3,
          any -> new Functions.Copies())),
      entry("copy", new Entry("copy(edge, parallelism, task, counted)", 4,
          any -> new Functions.Copy())),
      entry("watched", new Entry("watched(edge)", 1, any -> new Functions.Watched())),
      entry("show", new Entry("show(edge, record, task)", 3, any -> new Functions.Show())),
      entry("remember", new Entry("remember(operator, key, row)", 3,
          any -> new Functions.Remember())),
      entry("lookup", new Entry("lookup(operator, key)", 2, any -> new Functions.Lookup())),
      entry("work", new Entry("work(ms)", 1, any -> new Functions.Work())),
      entry("wait", new Entry("wait(ms)", 1, any -> new Functions.Wait())),
      entry("bounded", new Entry("bounded(value)", 1, 1, ProbeCatalog::bounded)),
      entry("fold_begin", counting(BoundedFunctions.Counted.FOLD_BEGIN)),
      entry("fold_step", counting(BoundedFunctions.Counted.FOLD_STEP)),
      entry("fold_end", counting(BoundedFunctions.Counted.FOLD_END)),
      entry("at_most", new Entry("at_most(count)", 1, 1, BoundedFunctions.AtMost::new)),
      entry("bounded_format", new Entry("bounded_format(format)", 1, 1,
          BoundedFunctions.Format::new)),
      entry("bounded_repeat", new Entry("bounded_repeat(text, times)", 2, 2,
          BoundedFunctions.Repeat::new)),
      entry("bounded_replace", new Entry("bounded_replace(text, search[, replacement])", 2, 3,
          BoundedFunctions.Replace::new)),
      entry("replaceable", new Entry("replaceable(text, replacement)", 2, 2,
          BoundedFunctions.Replaceable::new)),
      entry("parsable", new Entry("parsable(text, fields)", 2, 2,
          BoundedFunctions.Parsable::new)),
      entry("sequence_stop", new Entry("sequence_stop(start, stop[, step])", 2, 3,
          BoundedFunctions.SequenceStop::new))));

  private String name;

  private static BoundFunction bounded(StructType given) {
    return given.apply(0).dataType() instanceof StringType
        ? new BoundedFunctions.TextResult()
        : new BoundedFunctions.Result(given, BoundedFunctions.Counted.RESULT);
  }

  private static Entry counting(BoundedFunctions.Counted counted) {
    return new Entry("bounded(value)", 1, 1, given -> new BoundedFunctions.Result(given, counted));
  }

  /** How to make a function of the types of its arguments. */
  private record Entry(String usage, int least, int most,
      Function<StructType, BoundFunction> make) {
    /** {@code make} gets the type of the last argument. */
    Entry(String usage, int arguments, Function<DataType, BoundFunction> make) {
      this(usage, arguments, arguments,
          given -> make.apply(plain(given.fields()[given.size() - 1].dataType())));
    }

    /** Strings of any collation or length are passed as they are. */
    private static DataType plain(DataType type) {
      return type instanceof StringType ? DataTypes.StringType : type;
    }
  }

  @Override
  public void initialize(String catalogName, CaseInsensitiveStringMap options) {
    name = catalogName;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Identifier[] listFunctions(String[] namespace) {
    return ENTRIES.keySet().stream().map(n -> Identifier.of(namespace, n))
        .toArray(Identifier[]::new);
  }

  @Override
  public UnboundFunction loadFunction(Identifier identifier) {
    Entry entry = ENTRIES.get(identifier.name());
    if (entry == null) {
      throw new UnsupportedOperationException(
          "no function '" + identifier.name() + "'; the functions are "
              + String.join(", ", ENTRIES.keySet()));
    }
    return new Unbound(identifier.name(), entry);
  }

  private record Unbound(String name, Entry entry) implements UnboundFunction {
    @Override
    public String description() {
      return entry.usage();
    }

    @Override
    public BoundFunction bind(StructType given) {
      if (given.size() < entry.least() || given.size() > entry.most()) {
        throw new UnsupportedOperationException(
            entry.usage() + " takes " + entry.least() + " arguments, not " + given.size());
      }
      return entry.make().apply(given);
    }
  }
}
