// Keeps which batches end early, and which runs may not begin another batch.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;

/**
 * A run is a query from its start to its stop. An ending names a batch of a run and when it ends, a
 * little ahead: all readers know of it by then and end at the same time, so that none waits for
 * others. A task of that batch ends even if it checks late; later batches, other runs and other jobs
 * do not. With a hold the later batches of the run read nothing, so that the query can be stopped between
 * two batches with nothing to replay.
 */
final class Endings {
  /** Spark kills tasks asynchronously: those of a stopped run may live on for a moment. */
  static final long KEEP_US = 60_000_000;
  static final long NEVER = Long.MAX_VALUE;
  private static final long IN_USE = Long.MAX_VALUE;

  /**
   * The last batch of a run that ends early; forgotten some time after the run was stopped. The
   * version says when it changed: executors get what changed since their last exchange.
   */
  record Ending(String job, long last, long atUs, boolean hold, long stoppedUs, long version) {}

  private volatile Map<String, Ending> byRun = Map.of();

  /** A run that is held stays so: another end must not let it read on. */
  synchronized void set(String job, String run, long last, long atUs, boolean hold, long version) {
    Map<String, Ending> changed = new HashMap<>(byRun);
    Ending before = changed.get(run);
    if (before == null || !before.hold) {
      changed.put(run, new Ending(job, last, atUs, hold, IN_USE, version));
    }
    byRun = Map.copyOf(changed);
  }

  /** The job's runs so far are stopped: their holds stay for those tasks that are still alive. */
  synchronized void stopped(String job, long nowUs, long version) {
    Map<String, Ending> changed = new HashMap<>(byRun);
    forgetStopped(changed, nowUs);
    changed.replaceAll((run, ending) -> ending.job.equals(job) && ending.stoppedUs == IN_USE
        ? new Ending(job, ending.last, ending.atUs, ending.hold, nowUs, version) : ending);
    byRun = Map.copyOf(changed);
  }

  private static void forgetStopped(Map<String, Ending> endings, long nowUs) {
    endings.values().removeIf(
        ending -> ending.stoppedUs != IN_USE && nowUs - ending.stoppedUs > KEEP_US);
  }

  int size() {
    return byRun.size();
  }

  /** When a batch ends early, in driver time; {@link #NEVER} if it does not. */
  long endUs(String run, long batch) {
    Ending ending = byRun.get(run);
    return ending != null && batch <= ending.last ? ending.atUs : NEVER;
  }

  boolean holds(String run, long batch) {
    Ending ending = byRun.get(run);
    return ending != null && ending.hold && batch > ending.last;
  }

  /** What changed after a version. */
  ObjectNode toJson(long since) {
    ObjectNode json = Json.object();
    byRun.forEach((run, ending) -> {
      if (ending.version > since) {
        ObjectNode entry = json.putObject(run).put("job", ending.job).put("last", ending.last)
            .put("at_us", ending.atUs).put("hold", ending.hold);
        if (ending.stoppedUs != IN_USE) {
          entry.put("stopped_us", ending.stoppedUs);
        }
      }
    });
    return json;
  }

  /** Takes over what changed; with {@code all}, what is not in it is gone. */
  synchronized void learn(JsonNode json, boolean all, long nowUs) {
    if (json.isEmpty() && !all) {
      return;
    }
    Map<String, Ending> known = all ? new HashMap<>() : new HashMap<>(byRun);
    forgetStopped(known, nowUs);
    json.properties().forEach(e -> {
      JsonNode ending = e.getValue();
      known.put(e.getKey(), new Ending(ending.path("job").asText(),
          ending.path("last").asLong(), ending.path("at_us").asLong(),
          ending.path("hold").asBoolean(), ending.path("stopped_us").asLong(IN_USE), 0));
    });
    byRun = Map.copyOf(known);
  }
}
