// What went wrong with the record in work, for its dead letter.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.unsafe.types.UTF8String;

/** Called by generated code. */
public final class Failures {
  private static final int MAX_ERROR_CHARS = 300;
  private static final ThreadLocal<Failure> LAST = new ThreadLocal<>();

  private record Failure(String field, String error) {}

  private Failures() {}

  /** An expression threw: keeps the error, or with a field's name throws it on. */
  public static void caught(Exception error, String field) {
    if (field.isEmpty()) {
      Failure inner = LAST.get();
      String name = inner == null || inner.error != null ? "" : inner.field;
      LAST.set(new Failure(name, describe(error)));
      return;
    }
    LAST.set(new Failure(field, null));
    Failures.<RuntimeException>throwOn(error);
  }

  @SuppressWarnings("unchecked")
  private static <E extends Exception> void throwOn(Exception error) throws E {
    throw (E) error;
  }

  /** The first line of the innermost cause: Spark wraps what a parser says. */
  private static String describe(Throwable error) {
    Throwable cause = error;
    while (cause.getCause() != null && cause.getCause().getMessage() != null) {
      cause = cause.getCause();
    }
    String message = cause.getMessage();
    String line = message == null ? cause.getClass().getSimpleName() : message.split("\\R", 2)[0];
    line = line.replaceAll(" SQLSTATE: \\w+$", "");
    return line.length() <= MAX_ERROR_CHARS ? line : line.substring(0, MAX_ERROR_CHARS) + "…";
  }

  static void reset() {
    if (LAST.get() != null) {
      LAST.remove();
    }
  }

  /** A dead letter as JSON; of a value with more characters than allowed only the beginning. */
  static UTF8String letter(UTF8String reason, UTF8String at, UTF8String source, UTF8String value,
      int maxChars) {
    ObjectNode json = Json.object().put("reason", String.valueOf(reason))
        .put("at", String.valueOf(at));
    Failure failure = LAST.get();
    reset();
    if (failure != null && !failure.field.isEmpty()) {
      json.put("field", failure.field);
    }
    if (failure != null && failure.error != null) {
      json.put("error", failure.error);
    }
    json.put("source", String.valueOf(source));
    if (value != null && value.numChars() > maxChars) {
      json.put("bytes", value.numBytes()).put("value", value.substring(0, maxChars).toString());
    } else if (value != null) {
      json.put("value", value.toString());
    }
    return UTF8String.fromString(Json.write(json));
  }
}
