// How much the functions of an expression may make of one record.
package io.trilithon.probe;

import java.util.ArrayDeque;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * All jobs share a JVM's memory: one record must not be able to fill it. The texts and collections
 * that are made of a record are added up until the next one is taken; of a fold (Spark's aggregate)
 * only the latest result counts. What exceeds the limit throws like a division by zero, so that the
 * record becomes a dead letter.
 */
final class Budget {
  /** Kafka's own limit for a record is 1 MiB by default. */
  static final long MAX_BYTES = 16L << 20;
  /** A list of numbers of this length has the maximal size. */
  static final long MAX_COUNT = MAX_BYTES / Long.BYTES;

  private long usedBytes;
  private final ArrayDeque<Long> folds = new ArrayDeque<>();

  void reset() {
    usedBytes = 0;
    folds.clear();
  }

  void use(long bytes) {
    usedBytes += bytes;
    check(usedBytes);
  }

  /** A fold begins: what its steps make is garbage, but for the last. */
  void beginFold() {
    folds.push(usedBytes);
  }

  void foldTo(long bytes) {
    usedBytes = folds.isEmpty() ? usedBytes : folds.peek();
    use(bytes);
  }

  void endFold(long bytes) {
    foldTo(bytes);
    folds.poll();
  }

  /** Throws if so many bytes are more than the functions may make of one record. */
  static void check(long bytes) {
    if (bytes > MAX_BYTES) {
      throw new ArithmeticException(
          "functions made more than " + MAX_BYTES + " bytes of one record");
    }
  }

  /** Throws if so many characters or elements are more than a function may make. */
  static void checkCount(long count) {
    if (count > MAX_COUNT) {
      throw new ArithmeticException(
          "a function was asked for " + count + " characters or elements, more than " + MAX_COUNT);
    }
  }

  /** Whether values of a type can be of any size. */
  static boolean varies(DataType type) {
    return type instanceof StringType || type instanceof BinaryType || type instanceof ArrayType
        || type instanceof MapType || type instanceof StructType;
  }

  /** The bytes of a value; numbers count as eight, collections with everything in them. */
  static long sizeOf(Object value, DataType type) {
    if (value == null) {
      return Long.BYTES;
    }
    if (type instanceof StringType) {
      return ((UTF8String) value).numBytes();
    }
    if (type instanceof BinaryType) {
      return ((byte[]) value).length;
    }
    if (type instanceof ArrayType array) {
      return sizeOfArray((ArrayData) value, array.elementType());
    }
    if (type instanceof MapType map) {
      MapData data = (MapData) value;
      return sizeOfArray(data.keyArray(), map.keyType())
          + sizeOfArray(data.valueArray(), map.valueType());
    }
    if (type instanceof StructType struct) {
      InternalRow row = (InternalRow) value;
      long bytes = 0;
      for (int i = 0; i < struct.length(); i++) {
        DataType field = struct.apply(i).dataType();
        bytes += Long.BYTES + (row.isNullAt(i) ? 0 : sizeOf(row.get(i, field), field));
      }
      return bytes;
    }
    return Long.BYTES;
  }

  private static long sizeOfArray(ArrayData array, DataType element) {
    long bytes = (long) array.numElements() * Long.BYTES;
    if (varies(element)) {
      for (int i = 0; i < array.numElements() && bytes <= MAX_BYTES; i++) {
        bytes += array.isNullAt(i) ? 0 : sizeOf(array.get(i, element), element);
      }
    }
    return bytes;
  }
}
