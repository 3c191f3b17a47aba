// Ends the work on a record whose task is being killed.
package io.trilithon.probe;

/**
 * An error, not an exception: the {@code try} around an expression would make the record a dead
 * letter.
 */
final class TaskEnded extends Error {
  private static final long serialVersionUID = 1;

  TaskEnded() {
    super("the task was ended while it worked on a record");
  }
}
