// A batch of a job whose end and hold a test decides.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;

public final class BatchState {
  private static final String RUN = "r";
  private static final long BATCH = 1;

  private final Registry registry = new Registry();

  public final BatchSignal signal = new BatchSignal(registry, null, "j", 7, RUN, BATCH);

  /** What the next report says of the batch's only reader. */
  public JsonNode reader() {
    return registry.readerRows().values().iterator().next();
  }

  public void end() {
    registry.endings.set("j", RUN, BATCH, registry.clock.nowUs(), false, 1);
  }

  /** The batch before it ended with a hold. */
  public void hold() {
    registry.endings.set("j", RUN, BATCH - 1, registry.clock.nowUs(), true, 1);
  }

  /** As if it had not been told. */
  public void release() {
    registry.endings.learn(Json.object(), true, 0);
  }
}
