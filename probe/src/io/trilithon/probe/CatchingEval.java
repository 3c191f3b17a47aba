// Like Spark's node behind its try_ functions (TryEval), but keeps what it caught.
package io.trilithon.probe;

import static io.trilithon.probe.ScalaLists.seq;

import java.io.Serializable;
import java.util.List;
import java.util.Objects;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.codegen.JavaCode;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * Without a field: null where the child throws; the error is kept for the record's dead letter.
 * With a field: notes its name and throws on, to the node around it.
 */
public final class CatchingEval extends Expression implements Serializable {
  private static final long serialVersionUID = 1;

  private final Expression child;
  private final String field;

  public CatchingEval(Expression child, String field) {
    this.child = child;
    this.field = field;
  }

  @Override
  public Object eval(InternalRow input) {
    try {
      return child.eval(input);
    } catch (Exception e) {
      Failures.caught(e, field);
      return null;
    }
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode ev) {
    ExprCode inner = child.genCode(context);
    String type = CodeGenerator.javaType(dataType());
    String nothing = CodeGenerator.defaultValue(dataType(), false);
    String name = context.addReferenceObj("field", field, "java.lang.String");
    List<String> parts = List.of(
        "boolean ", " = true;\n" + type + " ", " = " + nothing + ";\ntry {\n",
        "\n", " = ", ";\n", " = ", ";\n} catch (Exception e) {\n  "
            + Failures.class.getName() + ".caught(e, " + name + ");\n}\n");
    List<JavaCode> inputs = List.of(
        ev.isNull(), ev.value(), inner.code(), ev.isNull(), inner.isNull(), ev.value(),
        inner.value());
    return ev.copy(new CodeBlock(seq(parts), seq(inputs)), ev.isNull(), ev.value());
  }

  @Override
  public DataType dataType() {
    return child.dataType();
  }

  /** Otherwise Spark would evaluate a constant child by itself while it plans, and fail. */
  @Override
  public boolean foldable() {
    return child.foldable();
  }

  @Override
  public boolean nullable() {
    return true;
  }

  @Override
  public Seq<Expression> children() {
    return seq(List.of(child));
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> newChildren) {
    return new CatchingEval(newChildren.head(), field);
  }

  @Override
  public int productArity() {
    return 2;
  }

  @Override
  public Object productElement(int n) {
    return n == 0 ? child : field;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof CatchingEval;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof CatchingEval that && child.equals(that.child)
        && field.equals(that.field);
  }

  @Override
  public int hashCode() {
    return Objects.hash(child, field);
  }
}
