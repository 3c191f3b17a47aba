// Owns the written form of an edge, "job/from>to", in which queries name what a probe belongs to.
package io.trilithon.probe;

/** One edge of a job; {@code from} is empty for a source and for a place inside an operator. */
record EdgeName(String job, String from, String to) {

  /**
   * Reads "job/from>to", "job/>to" or "job/operator"; a job may contain slashes, an operator may
   * not.
   */
  static EdgeName parse(String text) {
    int slash = text.lastIndexOf('/');
    int arrow = text.indexOf('>', slash + 1);
    if (slash <= 0 || slash == text.length() - 1 || arrow == text.length() - 1) {
      throw new IllegalArgumentException(
          "'" + text + "' is not an edge: write job/from>to or job/operator");
    }
    String from = arrow < 0 ? "" : text.substring(slash + 1, arrow);
    String to = text.substring((arrow < 0 ? slash : arrow) + 1);
    return new EdgeName(text.substring(0, slash), from, to);
  }

  /** The receiving operator, as tables and credits are keyed. */
  String receiver() {
    return receiver(job, to);
  }

  static String receiver(String job, String operator) {
    return job + "/" + operator;
  }
}
