// The base of all functions of the catalog: their types, and that the optimizer may not move them.
package io.trilithon.probe;

import java.util.Arrays;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;

/**
 * Declared non-deterministic: Spark does not push filters through such a call and evaluates it once
 * per row.
 */
public abstract class ProbeFunction implements ScalarFunction<Object> {
  private final String name;
  private final DataType result;
  private final DataType[] inputs;

  protected ProbeFunction(String name, DataType result, DataType... inputs) {
    this.name = name;
    this.result = result;
    this.inputs = inputs;
  }

  @Override
  public DataType[] inputTypes() {
    return inputs.clone();
  }

  @Override
  public DataType resultType() {
    return result;
  }

  @Override
  public boolean isResultNullable() {
    return false;
  }

  @Override
  public boolean isDeterministic() {
    return false;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String canonicalName() {
    return "io.trilithon.probe." + name + Arrays.toString(inputs);
  }
}
