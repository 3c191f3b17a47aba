// Tests of work and wait, and of the catalog that offers them.
package io.trilithon.probe;

import java.lang.management.ManagementFactory;
import java.lang.reflect.Method;
import java.util.Arrays;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

class WorkloadTest {
  private static long cpuNs() {
    return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
  }

  /**
   * The least CPU time of a few calls. A machine that is shared counts time as a thread's that others
   * had, but seldom five times in a row.
   */
  private static long leastCpuNs(Runnable work) {
    long least = Long.MAX_VALUE;
    for (int i = 0; i < 5; i++) {
      long before = cpuNs();
      work.run();
      least = Math.min(least, cpuNs() - before);
    }
    return least;
  }

  void workBurnsTheThreadsCpu() {
    Workload.work(5);
    Check.close(20e6, leastCpuNs(() -> Workload.work(20)), 2e6);
  }

  void waitBurnsNone() {
    long start = System.nanoTime();
    Workload.pause(20.5);
    Check.that(System.nanoTime() - start >= 20_500_000, "at least as long as asked");
    Check.that(leastCpuNs(() -> Workload.pause(20.5)) < 5_000_000, "no CPU");
  }

  private static void endsAtAnInterrupt(Runnable work) throws InterruptedException {
    Throwable[] thrown = new Throwable[1];
    Thread thread = new Thread(() -> {
      try {
        work.run();
      } catch (Throwable e) {
        thrown[0] = e;
      }
    });
    thread.start();
    Thread.sleep(50);
    thread.interrupt();
    thread.join(60_000);
    Check.that(!thread.isAlive(), "the thread ends");
    Check.that(thrown[0] instanceof TaskEnded, "not by an exception, which `try` would catch");
  }

  void workEndsAtAnInterrupt() throws InterruptedException {
    endsAtAnInterrupt(() -> Workload.work(1e9));
  }

  void waitEndsAtAnInterrupt() throws InterruptedException {
    endsAtAnInterrupt(() -> Workload.pause(1e9));
  }

  private static ProbeCatalog catalog() {
    ProbeCatalog catalog = new ProbeCatalog();
    catalog.initialize("tri", CaseInsensitiveStringMap.empty());
    return catalog;
  }

  void everyFunctionHasAStaticInvokeOfItsTypes() throws Exception {
    StructType[] shapes = {
        new StructType().add("a", DataTypes.DoubleType),
        new StructType().add("a", DataTypes.StringType).add("b", DataTypes.LongType),
        new StructType().add("a", DataTypes.StringType).add("b", DataTypes.IntegerType)
            .add("c", DataTypes.LongType),
        new StructType().add("a", DataTypes.StringType).add("b", DataTypes.IntegerType)
            .add("c", DataTypes.IntegerType).add("d", DataTypes.BooleanType),
        new StructType().add("a", DataTypes.StringType).add("b", DataTypes.StringType)
            .add("c", DataTypes.StringType).add("d", DataTypes.StringType)
            .add("e", DataTypes.IntegerType).add("f", DataTypes.BooleanType)};
    for (Identifier id : catalog().listFunctions(new String[0])) {
      ScalarFunction<?> bound = null;
      for (StructType shape : shapes) {
        try {
          bound = (ScalarFunction<?>) catalog().loadFunction(id).bind(shape);
        } catch (UnsupportedOperationException e) {
          continue;
        }
      }
      Check.that(bound != null, id.name());
      // Only this one counts nothing.
      Check.equal(id.name().equals("parsable"), bound.isDeterministic());
      if (bound.isResultNullable()) {
        continue; // it is around one of Spark's: nulls reach its produceResult
      }
      int arguments = bound.inputTypes().length;
      Method[] found = Arrays.stream(bound.getClass().getMethods())
          .filter(m -> m.getName().equals("invoke") && m.getParameterCount() == arguments)
          .toArray(Method[]::new);
      Check.that(found.length > 0, id.name() + " has no invoke");
    }
  }

  void anUnknownFunctionOrCountIsRefusedInWords() {
    Check.refused("no function 'x'",
        () -> catalog().loadFunction(Identifier.of(new String[0], "x")));
    Check.refused("takes 1 arguments, not 0",
        () -> catalog().loadFunction(Identifier.of(new String[0], "work")).bind(new StructType()));
  }
}
