// Parses JSON texts in generated code.
package io.trilithon.probe;

import static io.trilithon.probe.ScalaLists.seq;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.json.JsonToStructsEvaluator;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's from_json is evaluated outside of generated code: a stage with it is cut into three, and
 * each part copies its rows. This calls what from_json calls, as Spark itself does with to_json.
 */
public final class JsonRows {
  /** Options name the field for what cannot be parsed. */
  private static final String CORRUPT_RECORD = "_corrupt_record";

  private JsonRows() {}

  /** The text as a row of this schema, null if the text is. */
  public static Expression parsed(Expression text, String schema, Map<String, String> options,
      String timeZone) {
    StructType rows = StructType.fromDDL(schema).asNullable();
    JsonToStructsEvaluator evaluator = new JsonToStructsEvaluator(
        scala.collection.immutable.Map.from(CollectionConverters.asScala(options)), rows,
        CORRUPT_RECORD, Option.apply(timeZone), false);
    return new Invoke(Literal.fromObject(evaluator), "evaluate", rows, seq(List.of(text)),
        seq(List.<AbstractDataType>of()), true, true, true);
  }
}
