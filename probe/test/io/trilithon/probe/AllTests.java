// Runs the tests: every method of the test classes; its name says what it proves.
package io.trilithon.probe;

import io.trilithon.source.EndableReaderTest;
import io.trilithon.source.LatestRowsTest;
import io.trilithon.source.RecentIdsTest;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

final class AllTests {
  private static final List<Class<?>> CLASSES = List.of(
      NamesTest.class, MeasuresTest.class, RoutingTest.class, CreditTest.class,
      InstanceTest.class, ExchangeTest.class, DriverTest.class, WorkloadTest.class,
      EndableReaderTest.class, RecentIdsTest.class, LatestRowsTest.class,
      HoldBacksTest.class, PeeksTest.class, BroadcastTableTest.class,
      ReportsTest.class, GrowthTest.class,
      StallTest.class, BoundsTest.class, ClockTest.class, FailuresTest.class);

  private AllTests() {}

  public static void main(String[] arguments) throws ReflectiveOperationException {
    int failed = 0;
    int run = 0;
    for (Class<?> type : CLASSES) {
      Method[] methods = type.getDeclaredMethods();
      Arrays.sort(methods, Comparator.comparing(Method::getName));
      for (Method method : methods) {
        if (method.isSynthetic() || method.getParameterCount() > 0
            || method.getReturnType() != void.class) {
          continue;
        }
        run++;
        try {
          method.invoke(type.getDeclaredConstructor().newInstance());
        } catch (InvocationTargetException e) {
          failed++;
          System.out.println(
              "FAILED " + type.getSimpleName() + "." + method.getName() + ": " + e.getCause());
          Arrays.stream(e.getCause().getStackTrace()).limit(6)
              .forEach(f -> System.out.println("    at " + f));
        }
      }
    }
    System.out.println((run - failed) + " passed, " + failed + " failed");
    System.exit(failed == 0 ? 0 : 1);
  }
}
