// Owns smooth weighted round robin: the order in which one sender serves the used tasks.
package io.trilithon.probe;

/** Each pick raises every task by its weight and takes the highest, which pays the total back (as nginx does it). */
final class SmoothRoundRobin {
  private static final int MAX_PHASE = 1024;

  private final RoutingTable table;
  private final double[] current;
  private final double total;

  /** Senders with different phases start at different places of the cycle, so that they do not hit one task together. */
  SmoothRoundRobin(RoutingTable table, int phase) {
    this.table = table;
    current = new double[table.targets.length];
    double sum = 0;
    for (double weight : table.weights) {
      sum += weight;
    }
    total = sum;
    for (int i = Math.floorMod(phase, Math.min(MAX_PHASE, table.targets.length)); i > 0; i--) {
      next();
    }
  }

  int next() {
    int best = 0;
    for (int i = 0; i < current.length; i++) {
      current[i] += table.weights[i];
      if (current[i] > current[best]) {
        best = i;
      }
    }
    current[best] -= total;
    return table.targets[best];
  }
}
