// Rewrites a parsed expression so that the memory it asks for is bounded.
package io.trilithon.probe;

import static io.trilithon.probe.ScalaLists.seq;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Concat;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Changed are calls with a count that says how long their result is, calls that functions of the
 * catalog replace, calls whose result can be longer than what went into them, which is counted, and
 * lambdas that are called for each element of a collection.
 */
public final class Bounds {
  /** The argument that is a count of characters or elements. */
  private static final Map<String, Integer> COUNTS = Map.of(
      "lpad", 1, "rpad", 1, "space", 0, "array_repeat", 1, "array_insert", 1, "format_number", 1);
  private static final Map<String, String> REPLACED = Map.of(
      "repeat", "bounded_repeat", "replace", "bounded_replace");
  /** Functions that keep what their lambda returns for each element. */
  private static final Set<String> MAPPING = Set.of(
      "transform", "zip_with", "transform_values", "transform_keys", "map_zip_with");
  private static final Set<String> FOLDS = Set.of("aggregate", "reduce");
  private static final Set<String> FORMATS = Set.of("format_string", "printf");
  private static final Set<String> GROWING = Set.of(
      "concat", "concat_ws", "format_string", "printf", "hex", "base64", "url_encode", "to_json",
      "to_csv", "overlay", "quote", "lpad", "rpad", "space", "array_repeat", "array_insert",
      "array_join", "flatten", "regexp_replace", "array_append", "array_prepend", "array_union",
      "arrays_zip", "map_concat", "transform", "zip_with", "transform_values", "split", "sentences",
      "regexp_extract_all", "map_zip_with");
  /**
   * What these put together is as large as its parts, which may be the same column many times: an
   * operator behind an operator multiplies its size. The parser itself makes a node of a struct.
   */
  private static final Set<String> CONSTRUCTORS = Set.of(
      "array", "struct", "named_struct", "map", "map_from_arrays");

  private final String catalog;
  private final boolean constructors;

  private Bounds(String catalog, boolean constructors) {
    this.catalog = catalog;
    this.constructors = constructors;
  }

  /** The expression with bounded calls; {@code catalog} is the name of the probe's catalog. */
  public static Expression apply(Expression tree, String catalog) {
    return apply(tree, catalog, true);
  }

  /**
   * Without {@code constructors} those stay as they are: in the argument of an aggregate function,
   * such as max(struct(at, v)), Spark takes no call that is declared non-deterministic.
   */
  public static Expression apply(Expression tree, String catalog, boolean constructors) {
    return new Bounds(catalog, constructors).bounded(tree);
  }

  private Expression bounded(Expression tree) {
    List<Expression> children = new ArrayList<>();
    CollectionConverters.asJava(tree.children()).forEach(child -> children.add(bounded(child)));
    if (tree instanceof UnresolvedFunction call && call.nameParts().size() == 1) {
      return call(call, children);
    }
    Expression changed = children.isEmpty() ? tree : tree.withNewChildren(seq(children));
    boolean grows = changed instanceof Concat
        || changed instanceof CreateNamedStruct && putsTogether(changed);
    return grows ? function("bounded", changed) : changed;
  }

  /** Whether a constructor is to be bounded: not one of constants, which some functions require. */
  private boolean putsTogether(Expression constructor) {
    return constructors && !isConstant(constructor);
  }

  private static boolean isConstant(Expression tree) {
    if (tree instanceof UnresolvedFunction call && !CONSTRUCTORS.contains(nameOf(call))) {
      return false;
    }
    List<Expression> children = CollectionConverters.asJava(tree.children());
    return children.isEmpty()
        ? tree instanceof Literal || tree instanceof UnresolvedFunction
        : children.stream().allMatch(Bounds::isConstant);
  }

  private static String nameOf(UnresolvedFunction call) {
    return call.nameParts().head().toLowerCase(Locale.ROOT);
  }

  private Expression call(UnresolvedFunction call, List<Expression> arguments) {
    String name = nameOf(call);
    int count = arguments.size();
    if (REPLACED.containsKey(name) && count <= 3) {
      return function(REPLACED.get(name), arguments.toArray(Expression[]::new));
    }
    Integer counting = COUNTS.get(name);
    if (counting != null && counting < count) {
      arguments.set(counting, function("at_most", arguments.get(counting)));
    }
    if (FORMATS.contains(name) && count > 0) {
      arguments.set(0, function("bounded_format", arguments.get(0)));
    }
    if (name.equals("sequence") && (count == 2 || count == 3)) {
      arguments.set(1, function("sequence_stop", arguments.toArray(Expression[]::new)));
    }
    if (name.equals("regexp_replace") && count >= 3) {
      arguments.set(0, function("replaceable", arguments.get(0), arguments.get(2)));
    }
    if (name.equals("from_json") && count >= 2) {
      arguments.set(0, function("parsable", arguments.get(0),
          Literal.create(fields(call, 1), DataTypes.IntegerType)));
    }
    if (MAPPING.contains(name)) {
      arguments.replaceAll(argument -> body(argument, "bounded"));
    }
    if (FOLDS.contains(name) && count >= 3) {
      arguments.set(1, function("fold_begin", arguments.get(1)));
      arguments.set(2, body(arguments.get(2), "fold_step"));
      return function("fold_end", call.withNewChildren(seq(arguments)));
    }
    Expression changed = count == 0 ? call : call.withNewChildren(seq(arguments));
    boolean grows = GROWING.contains(name)
        || CONSTRUCTORS.contains(name) && putsTogether(changed);
    return grows ? function("bounded", changed) : changed;
  }

  /**
   * At least as many as a schema has fields: a list of columns, a schema as JSON, or an example in
   * JSON of which Spark makes one.
   */
  private static int fields(UnresolvedFunction call, int argument) {
    return (int) call.children().apply(argument).toString().chars()
        .filter(each -> ",:<".indexOf(each) >= 0).count() + 1;
  }

  /** A lambda whose result is counted; anything else stays as it is. */
  private Expression body(Expression argument, String counting) {
    if (!(argument instanceof LambdaFunction lambda)) {
      return argument;
    }
    List<Expression> children = new ArrayList<>(CollectionConverters.asJava(lambda.children()));
    children.set(0, function(counting, children.get(0)));
    return lambda.withNewChildren(seq(children));
  }

  private UnresolvedFunction function(String name, Expression... arguments) {
    return new UnresolvedFunction(seq(List.of(catalog, name)), seq(List.of(arguments)), false,
        Option.empty(), Option.empty(), seq(List.of()), false);
  }
}
