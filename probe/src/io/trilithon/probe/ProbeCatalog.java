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
      entry("emit", new Entry("emit(edge, task)", 2, any -> new Functions.Emit())),
      entry("sink", new Entry("sink(operator, origin_us, any)", 3, Functions.Sink::new)),
      entry("route", new Entry("route(edge, parallelism, any)", 3, Functions.Route::new)),
      entry("route_by_key", new Entry("route_by_key(edge, parallelism, hash)", 3,
          any -> new Functions.RouteByKey())),
      entry("origin", new Entry("origin(operator, any)", 2, any -> new Functions.Origin())),
      entry("work", new Entry("work(ms)", 1, any -> new Functions.Work())),
      entry("wait", new Entry("wait(ms)", 1, any -> new Functions.Wait()))));

  private String name;

  /** How to make a function; {@code make} gets the type of the last argument. */
  private record Entry(String usage, int arguments, Function<DataType, BoundFunction> make) {}

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
      if (given.size() != entry.arguments()) {
        throw new UnsupportedOperationException(
            entry.usage() + " takes " + entry.arguments() + " arguments, not " + given.size());
      }
      return entry.make().apply(plain(given.fields()[given.size() - 1].dataType()));
    }

    /** Strings of any collation or length are passed as they are. */
    private static DataType plain(DataType type) {
      return type instanceof StringType ? DataTypes.StringType : type;
    }
  }
}
