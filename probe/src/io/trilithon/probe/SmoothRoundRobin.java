// Smooth weighted round robin: the order in which one sender serves the tasks in use.
package io.trilithon.probe;

/**
 * Each pick adds every task's weight to its score, takes the highest and subtracts the total from
 * it, as in nginx.
 */
final class SmoothRoundRobin {
  private static final int MAX_PHASE = 1024;

  private final RoutingTable table;
  private final double[] current;
  private final double total;

  /**
   * Senders with different phases start at different points of the cycle, so that they do not all
   * hit one task.
   */
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
