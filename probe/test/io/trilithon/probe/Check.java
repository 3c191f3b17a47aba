// The assertions of the tests.
package io.trilithon.probe;

import java.util.Objects;

public final class Check {
  private Check() {}

  public static void equal(Object expected, Object actual) {
    if (!Objects.equals(expected, actual)) {
      throw new AssertionError("expected " + expected + ", got " + actual);
    }
  }

  public static void close(double expected, double actual, double tolerance) {
    if (!(Math.abs(expected - actual) <= tolerance)) {
      throw new AssertionError("expected " + expected + " +- " + tolerance + ", got " + actual);
    }
  }

  public static void that(boolean condition, String what) {
    if (!condition) {
      throw new AssertionError(what);
    }
  }

  public static void refused(String part, Runnable work) {
    try {
      work.run();
    } catch (RuntimeException e) {
      that(String.valueOf(e.getMessage()).contains(part),
          "refused with '" + e.getMessage() + "', not '" + part + "'");
      return;
    }
    throw new AssertionError("not refused: " + part);
  }
}
