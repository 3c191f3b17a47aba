// The executor of each task of each job in the current batch, idle tasks included, from the
// scheduler's events.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Probes see only records, not idle tasks. The stages of a chain are numbered from source to sink.
 */
final class TaskLocations extends SparkListener {
  private final DriverState state;
  private final Map<Integer, Place> stages = new HashMap<>();
  private final Map<String, Batch> batches = new HashMap<>();

  /** A job's running batch: the tasks of each of its stages, index to executor. */
  static final class Batch {
    final String name;
    final int sparkJob;
    final long submittedMs;
    final long previousEndedMs;
    long tasksUpMs;
    long endedMs;
    final List<Integer> tasksPerStage;
    final List<Map<Integer, String>> executors;

    Batch(String name, SparkListenerJobStart start, Batch previous, List<Integer> tasksPerStage) {
      this.name = name;
      sparkJob = start.jobId();
      submittedMs = start.time();
      previousEndedMs = previous == null ? 0 : previous.endedMs;
      this.tasksPerStage = tasksPerStage;
      executors = tasksPerStage.stream().<Map<Integer, String>>map(n -> new TreeMap<>()).toList();
    }

    boolean complete(int stage) {
      return executors.get(stage).size() == tasksPerStage.get(stage);
    }
  }

  private record Place(String job, Batch batch, int stage) {}

  TaskLocations(DriverState state) {
    this.state = state;
  }

  @Override
  public void onJobStart(SparkListenerJobStart event) {
    Properties properties = event.properties();
    String job = properties == null ? null : properties.getProperty(TaskProbe.JOB);
    if (job == null || isBroadcast(properties)) {
      return;
    }
    List<StageInfo> infos = CollectionConverters.asJava(event.stageInfos()).stream()
        .sorted((a, b) -> Integer.compare(a.stageId(), b.stageId())).toList();
    String name = TaskProbe.batch(properties.getProperty("spark.jobGroup.id"),
        properties.getProperty("streaming.sql.batchId"));
    synchronized (this) {
      Batch batch = new Batch(name, event, batches.get(job),
          infos.stream().map(StageInfo::numTasks).toList());
      stages.values().removeIf(place -> place.job.equals(job));
      batches.put(job, batch);
      for (int i = 0; i < infos.size(); i++) {
        stages.put(infos.get(i).stageId(), new Place(job, batch, i));
      }
    }
  }

  /**
   * Broadcast tables are sent before a batch, by Spark jobs that inherit the query's properties.
   */
  static boolean isBroadcast(Properties properties) {
    return properties.getProperty("spark.job.tags", "").contains("broadcast exchange");
  }

  @Override
  public void onTaskStart(SparkListenerTaskStart event) {
    Place place;
    boolean complete;
    synchronized (this) {
      place = stages.get(event.stageId());
      if (place == null) {
        return;
      }
      place.batch.executors.get(place.stage)
          .put(event.taskInfo().index(), event.taskInfo().executorId());
      place.batch.tasksUpMs = Math.max(place.batch.tasksUpMs, event.taskInfo().launchTime());
      complete = place.batch.complete(place.stage);
    }
    if (complete) {
      state.located(place.job, place.stage, place.batch.name, executorsOf(place));
    }
  }

  private synchronized Map<Integer, String> executorsOf(Place place) {
    return new TreeMap<>(place.batch.executors.get(place.stage));
  }

  @Override
  public synchronized void onJobEnd(SparkListenerJobEnd event) {
    for (Batch batch : batches.values()) {
      if (batch.sparkJob == event.jobId()) {
        batch.endedMs = event.time();
      }
    }
  }

  @Override
  public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
    state.executorLost(event.executorId());
  }

  synchronized void forget(String job) {
    batches.remove(job);
    stages.values().removeIf(place -> place.job.equals(job));
  }

  synchronized int stages() {
    return stages.size();
  }

  synchronized String batch(String job) {
    Batch batch = batches.get(job);
    return batch == null ? "" : batch.name;
  }

  /** Per job its running batch, and when that was planned, when its tasks were up. */
  synchronized ObjectNode batches() {
    ObjectNode json = Json.object();
    batches.forEach((job, batch) -> json.putObject(job).put("batch", batch.name)
        .put("previous_ended_ms", batch.previousEndedMs).put("submitted_ms", batch.submittedMs)
        .put("tasks_up_ms", batch.tasksUpMs));
    return json;
  }

  /** The number of tasks of each stage of the job's running batch; empty before the first. */
  synchronized List<Integer> tasksPerStage(String job) {
    Batch batch = batches.get(job);
    return batch == null ? List.of() : batch.tasksPerStage;
  }

  /** How many tasks of each stage of the job's running batch have started. */
  synchronized List<Integer> tasksStarted(String job) {
    Batch batch = batches.get(job);
    return batch == null ? List.of() : batch.executors.stream().map(Map::size).toList();
  }
}
