// Cumulative count, sum and sum of squares of one measured quantity.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;

final class Moments {
  long count;
  double sum;
  double sumOfSquares;
  double largest;

  void add(double value) {
    count++;
    sum += value;
    sumOfSquares += value * value;
    largest = Math.max(largest, value);
  }

  ObjectNode toJson() {
    return Json.object().put("count", count).put("sum_us", sum).put("sumsq_us2", sumOfSquares);
  }
}
