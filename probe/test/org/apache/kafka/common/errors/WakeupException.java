// Stands in for the Kafka client's, which is not on the class path of these tests.
package org.apache.kafka.common.errors;

public class WakeupException extends RuntimeException {
  private static final long serialVersionUID = 1L;
}
