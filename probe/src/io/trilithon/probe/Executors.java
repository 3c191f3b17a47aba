// The executors of the application: which there are, which get no more tasks, and their removal.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.ExecutorDecommissionInfo;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend;
import org.apache.spark.status.api.v1.ExecutorSummary;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An executor is excluded as Spark excludes one that is decommissioned: the scheduler offers its
 * slots to nobody, does not count them as slots of the application, and lets its tasks go on. The
 * executor itself is not told, so that the exclusion can be taken back.
 */
public final class Executors {
  private static volatile SparkContext spark;

  private Executors() {}

  static void connect(SparkContext context) {
    spark = context;
  }

  /** Whether executors can be excluded and removed: not in local mode, where the driver is one. */
  public static boolean removable() {
    return spark.schedulerBackend() instanceof CoarseGrainedSchedulerBackend;
  }

  /** {"id": {"slots": n, "running": n, "excluded": true, "logs": "http://..."}}. */
  public static String list() {
    ObjectNode json = Json.object();
    if (!removable()) {
      return Json.write(json);
    }
    CoarseGrainedSchedulerBackend backend = backend();
    List<String> registered = new ArrayList<>(CollectionConverters.asJava(backend.getExecutorIds()));
    Map<String, Object> running = CollectionConverters.asJava(
        ((TaskSchedulerImpl) spark.taskScheduler()).runningTasksByExecutors());
    for (ExecutorSummary summary
        : CollectionConverters.asJava(spark.statusStore().executorList(true))) {
      if (registered.contains(summary.id())) {
        json.putObject(summary.id()).put("slots", summary.maxTasks())
            .put("running", (Integer) running.getOrDefault(summary.id(), 0))
            .put("excluded", !backend.isExecutorActive(summary.id()))
            .put("logs", summary.executorLogs().getOrElse("stdout", () -> ""));
      }
    }
    return Json.write(json);
  }

  /** No task is placed on these executors from now on, a JSON list; their tasks go on. */
  public static void exclude(String executors) {
    CoarseGrainedSchedulerBackend backend = backend();
    synchronized (backend) {
      ids(executors).forEach(id -> backend.executorsPendingDecommission()
          .put(id, new ExecutorDecommissionInfo("removed on request", Option.empty())));
    }
  }

  /** Takes an exclusion back. */
  public static void include(String executors) {
    CoarseGrainedSchedulerBackend backend = backend();
    synchronized (backend) {
      ids(executors).forEach(id -> backend.executorsPendingDecommission().remove(id));
    }
    // The scheduler offers free slots when something changes, and something has.
    backend.reviveOffers();
  }

  /** Ends executors; the cluster manager keeps so many and does not replace these. */
  public static void kill(String executors, int keep) {
    backend().requestTotalExecutors(
        immutable(Map.of((Object) 0, (Object) keep)), immutable(Map.of((Object) 0, (Object) 0)),
        immutable(Map.of((Object) 0, immutable(Map.<String, Object>of()))));
    backend().killExecutors(CollectionConverters.asScala(ids(executors)).toSeq(), false, false,
        true);
  }

  private static <K, V> scala.collection.immutable.Map<K, V> immutable(Map<K, V> map) {
    return scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(map));
  }

  private static CoarseGrainedSchedulerBackend backend() {
    return (CoarseGrainedSchedulerBackend) spark.schedulerBackend();
  }

  private static List<String> ids(String executors) {
    List<String> ids = new ArrayList<>();
    for (JsonNode id : Json.parse(executors)) {
      ids.add(id.asText());
    }
    return ids;
  }
}
