// A report on its way from an executor to the host: the driver passes it on as text.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * Most reports are only passed on, and a cluster has many: what the driver needs of one stands before
 * its text. It is parsed for totals alone.
 */
final class SentReport {
  private static final String BEGIN = "report ";

  final String executor;
  final long timeUs;
  private final String text;
  private JsonNode parsed;

  private SentReport(String executor, long timeUs, String text) {
    this.executor = executor;
    this.timeUs = timeUs;
    this.text = text;
  }

  static String write(String executor, long timeUs, String json) {
    return BEGIN + timeUs + " " + executor + "\n" + json;
  }

  static boolean is(String message) {
    return message.startsWith(BEGIN);
  }

  static SentReport of(String message) {
    int end = message.indexOf('\n');
    int space = message.indexOf(' ', BEGIN.length());
    return new SentReport(message.substring(space + 1, end),
        Long.parseLong(message, BEGIN.length(), space, 10), message.substring(end + 1));
  }

  /** The report as it goes on to the host, with the wall clock's time of it. */
  String withWall(long wallUs, long clockSteps) {
    return "{\"wall_us\":" + wallUs + ",\"clock_steps\":" + clockSteps + "," + text.substring(1);
  }

  /** The same tree at every call: totals mark what they know in it. */
  JsonNode json() {
    if (parsed == null) {
      parsed = Json.parse(text);
    }
    return parsed;
  }
}
