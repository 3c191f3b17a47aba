// The sending end of one edge in one task: chooses the receiver, waits for its credit, counts.
package io.trilithon.probe;

import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;
import org.apache.spark.TaskContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

final class RouteProbe implements Gate.Meter {
  private static final Logger LOG = LoggerFactory.getLogger(RouteProbe.class);
  private static final long PLACEMENT_WAIT_NS = 1_000_000_000L;

  final Instance sender;
  private final Outbound edge;
  private final CreditCell cell;
  private final TableRef ref;
  private final TaskContext task;
  private final Registry registry;
  private final int phase;
  private RoutingTable seen;
  private RoutingTable fallback;
  private SmoothRoundRobin order;
  private int picked;
  private long hash;
  private final IntSupplier chooseNext = this::chooseNext;
  private final IntSupplier chooseByKey = this::chooseByKey;
  private int stateAt;
  private final IntSupplier chooseState = () -> stateAt;
  private final IntSupplier credit = () -> seen.credit;

  RouteProbe(Registry registry, EdgeName name, Instance sender, CreditCell cell, String batch,
      TaskContext task) {
    this.registry = registry;
    this.sender = sender;
    this.cell = cell;
    this.task = task;
    edge = sender.outbound(name.to());
    ref = registry.table(name.receiver());
    phase = sender.key.index() + 31 * registry.ordinal();
    registry.awaitReady();
    awaitPlacement(batch);
  }

  /**
   * Tasks may run elsewhere in each batch: waits for the table whose placement was resolved for
   * this batch.
   */
  private void awaitPlacement(String batch) {
    long until = System.nanoTime() + PLACEMENT_WAIT_NS;
    while (System.nanoTime() < until) {
      RoutingTable table = ref.get();
      if (table == null || !table.placed || table.batch.equals(batch)) {
        return;
      }
      registry.exchangeNow();
      table = ref.get();
      if (table.batch.equals(batch)) {
        return;
      }
      LockSupport.parkNanos(10_000_000);
    }
    LOG.warn("{}: no placement for batch {} within 1 s, using the previous one", sender.key, batch);
  }

  int route(int parallelism) {
    refresh(parallelism);
    picked = -1;
    return granted(
        Gate.pass(cell, chooseNext, credit, registry.ordinal(), registry.clock, task, this));
  }

  int routeByKey(int parallelism, long keyHash) {
    refresh(parallelism);
    hash = keyHash;
    picked = -1;
    return granted(
        Gate.pass(cell, chooseByKey, credit, registry.ordinal(), registry.clock, task, this));
  }

  /** The tasks that get records now. */
  int[] used(int parallelism) {
    refresh(parallelism);
    return seen.targets;
  }

  boolean uses(int parallelism, int task) {
    refresh(parallelism);
    return seen.uses(task);
  }

  /** State is where it is: no table chooses the task, but its credit counts. */
  int routeTo(int target) {
    refresh(target + 1);
    stateAt = target;
    return granted(
        Gate.pass(cell, chooseState, credit, registry.ordinal(), registry.clock, task, this));
  }

  private int granted(int target) {
    sender.sent(edge, target);
    return target;
  }

  private void refresh(int parallelism) {
    if (seen != null && seen.ordered) {
      return; // within a batch a key keeps its task, and so its order
    }
    RoutingTable table = ref.get();
    if (table == null) {
      if (fallback == null) {
        fallback = RoutingTable.even(parallelism, RoutingTable.DEFAULT_CREDIT);
      }
      table = fallback;
    }
    if (table != seen) {
      seen = table;
      order = new SmoothRoundRobin(table, phase);
    }
  }

  /**
   * Round robin waits for its choice (head-of-line blocking, as in the papers) unless the table
   * changed.
   */
  private int chooseNext() {
    RoutingTable table = ref.get();
    if (picked < 0 || table != null && table != seen && !seen.ordered) {
      refresh(1);
      picked = order.next();
    }
    return picked;
  }

  private int chooseByKey() {
    RoutingTable table = ref.get();
    if (table != null && table != seen) {
      refresh(1);
      picked = -1;
    }
    int task = seen.taskOfHash(hash);
    if (task == RoutingTable.SPREAD && picked < 0) {
      picked = order.next();
    }
    return task == RoutingTable.SPREAD ? picked : task;
  }

  @Override
  public void parked(int task, long ns) {
    sender.parked(edge, task, ns);
  }

  @Override
  public void awaitsCount() {
    registry.pace.hurry();
  }

  @Override
  public void forced() {
    sender.forced(edge);
  }
}
