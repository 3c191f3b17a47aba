// Driver time inside one JVM: a clock that never steps, its offset to the driver's, and the wall
// clock beside it.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongSupplier;

/**
 * Durations are measured in driver time, which runs with the processor's clock from the moment the
 * driver started, whatever happens to the system's clock. The offset to it is 0 on the driver; on
 * executors it is that of the fastest recent exchange, as in NTP. The origin time of a record comes
 * from a wall clock, so the driver also measures how far its own is from driver time, and executors
 * learn that from it. When the wall clock steps, records from before the step are still under way:
 * their latency is measured on the scale on which they were stamped.
 */
final class Clock {
  /** NTP slews smaller differences; what is more is a step. */
  static final long STEP_US = 100_000;
  private static final int SAMPLES = 64;
  private static final int KEPT_STEPS = 8;

  private final LongSupplier wall;
  private final long[] offsets = new long[SAMPLES];
  private final long[] errors = new long[SAMPLES];
  private int seen;
  private final long anchorUs;
  private volatile long offsetUs;
  private volatile long errorUs;
  private volatile Wall known = new Wall(0, 0, List.of());

  /** A step of the wall clock, and what it showed just before. */
  private record Step(long beforeUs, long stepUs) {}

  /** The wall clock: its offset to driver time, how often it stepped, and the latest steps. */
  private record Wall(long offsetUs, int steps, List<Step> latest) {}

  Clock() {
    this(Clock::systemWallUs);
  }

  /** For tests, with a wall clock of their own: microseconds since the epoch. */
  Clock(LongSupplier wall) {
    this.wall = wall;
    anchorUs = anchor();
  }

  /** Driver time in microseconds: the epoch's when the driver started; about 25 ns per call. */
  long nowUs() {
    return anchorUs + offsetUs + System.nanoTime() / 1000;
  }

  /** This JVM's own time, on which offsets are measured. */
  long localUs() {
    return anchorUs + System.nanoTime() / 1000;
  }

  long offsetUs() {
    return offsetUs;
  }

  /** Half of the fastest round trip: the true offset is within this of the published one. */
  long errorUs() {
    return errorUs;
  }

  /** The driver's wall clock. */
  long wallUs() {
    return nowUs() + known.offsetUs;
  }

  /** A time of the driver as the wall clock shows it now. */
  long wallOf(long driverUs) {
    return driverUs + known.offsetUs;
  }

  int steps() {
    return known.steps;
  }

  /** The time since a record's origin, which is a wall clock's; negative if that is ahead. */
  long sinceUs(long originUs) {
    Wall now = known;
    long us = nowUs() + now.offsetUs - originUs;
    for (int i = now.latest.size() - 1; i >= 0; i--) {
      Step step = now.latest.get(i);
      boolean earlier = originUs <= step.beforeUs && (step.stepUs > 0 || us < 0);
      us -= earlier ? step.stepUs : 0;
    }
    return us;
  }

  /** Follows the system's clock (NTP moves it); only the driver does so. */
  synchronized void followWall() {
    Wall before = known;
    long offset = anchor() - anchorUs;
    long moved = offset - before.offsetUs;
    if (Math.abs(moved) < STEP_US) {
      known = new Wall(offset, before.steps, before.latest);
      return;
    }
    List<Step> latest = new ArrayList<>(before.latest);
    latest.add(new Step(localUs() + before.offsetUs, moved));
    if (latest.size() > KEPT_STEPS) {
      latest.remove(0);
    }
    known = new Wall(offset, before.steps + 1, List.copyOf(latest));
  }

  /** What executors learn of the driver's wall clock. */
  ObjectNode wallJson() {
    Wall now = known;
    ObjectNode json = Json.object().put("offset_us", now.offsetUs).put("steps", now.steps);
    ArrayNode latest = json.putArray("latest");
    now.latest.forEach(step -> latest.addArray().add(step.beforeUs).add(step.stepUs));
    return json;
  }

  void learnWall(JsonNode json) {
    List<Step> latest = new ArrayList<>();
    json.path("latest").forEach(
        step -> latest.add(new Step(step.get(0).asLong(), step.get(1).asLong())));
    known = new Wall(json.path("offset_us").asLong(), json.path("steps").asInt(), latest);
  }

  /** One exchange: sent and answered by this JVM's clock, with the driver's time in between. */
  synchronized void sample(long askedUs, long answeredUs, long driverUs) {
    int slot = seen++ % SAMPLES;
    errors[slot] = Math.max(1, (answeredUs - askedUs + 1) / 2);
    offsets[slot] = driverUs - (askedUs + answeredUs) / 2;
    int best = 0;
    for (int i = 1; i < Math.min(seen, SAMPLES); i++) {
      if (errors[i] < errors[best]) {
        best = i;
      }
    }
    offsetUs = offsets[best];
    errorUs = errors[best];
  }

  /** What to add to the processor's clock to get the wall clock's time. */
  private long anchor() {
    long shortest = Long.MAX_VALUE;
    long anchor = 0;
    for (int i = 0; i < 20; i++) {
      long before = System.nanoTime();
      long wallUs = wall.getAsLong();
      long after = System.nanoTime();
      if (after - before < shortest) {
        shortest = after - before;
        anchor = wallUs - (before + after) / 2000;
      }
    }
    return anchor;
  }

  private static long systemWallUs() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000L + now.getNano() / 1000;
  }
}
