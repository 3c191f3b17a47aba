// Keeps the batches that end early, and whether the next batch of such a job may begin.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;

/**
 * An ending names a batch, not a time: a task of that batch ends even if it checks late, and tasks
 * of other batches and jobs do not. With a hold the senders of any other batch of the job wait
 * before their first record, so that the query can be stopped between two batches with nothing to
 * replay.
 */
final class Endings {
  record Ending(String batch, boolean hold) {}

  private volatile Map<String, Ending> byJob = Map.of();

  synchronized void set(String job, Ending ending) {
    Map<String, Ending> changed = new HashMap<>(byJob);
    changed.put(job, ending);
    byJob = Map.copyOf(changed);
  }

  /** True if the job had an ending. */
  synchronized boolean remove(String job) {
    Map<String, Ending> changed = new HashMap<>(byJob);
    boolean removed = changed.remove(job) != null;
    byJob = Map.copyOf(changed);
    return removed;
  }

  /** A new batch of the job runs: an ending without a hold is complete. True if it was removed. */
  synchronized boolean began(String job, String batch) {
    Ending ending = byJob.get(job);
    return ending != null && !ending.hold && !ending.batch.equals(batch) && remove(job);
  }

  boolean none() {
    return byJob.isEmpty();
  }

  boolean ends(String job, String batch) {
    Ending ending = byJob.get(job);
    return ending != null && ending.batch.equals(batch);
  }

  boolean holds(String job, String batch) {
    Ending ending = byJob.get(job);
    return ending != null && ending.hold && !ending.batch.equals(batch);
  }

  ObjectNode toJson() {
    ObjectNode json = Json.object();
    byJob.forEach((job, ending) ->
        json.putObject(job).put("batch", ending.batch).put("hold", ending.hold));
    return json;
  }

  synchronized void learn(JsonNode json) {
    Map<String, Ending> received = new HashMap<>();
    json.properties().forEach(e -> received.put(e.getKey(),
        new Ending(e.getValue().path("batch").asText(), e.getValue().path("hold").asBoolean())));
    byJob = Map.copyOf(received);
  }
}
