// A report on its way from an executor to the host: the driver passes it on as text.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * Most reports are only passed on, and a cluster has many: what the driver needs of one stands before
 * its text. It is parsed for totals alone.
 */
final class SentReport {
  private static final String BEGIN = "report ";
  private static final int NUMBERS = 3;

  final String executor;
  final long timeUs;
  final long sequence;
  /** The whole report from which this one differs; 0 if this one is whole. */
  final long base;
  private final String text;

  private SentReport(String executor, long[] numbers, String text) {
    this.executor = executor;
    timeUs = numbers[0];
    sequence = numbers[1];
    base = numbers[2];
    this.text = text;
  }

  static String write(String executor, long timeUs, long sequence, long base, String json) {
    return BEGIN + timeUs + " " + sequence + " " + base + " " + executor + "\n" + json;
  }

  static boolean is(String message) {
    return message.startsWith(BEGIN);
  }

  static SentReport of(String message) {
    long[] numbers = new long[NUMBERS];
    int at = BEGIN.length();
    for (int i = 0; i < NUMBERS; i++) {
      int space = message.indexOf(' ', at);
      numbers[i] = Long.parseLong(message, at, space, 10);
      at = space + 1;
    }
    int end = message.indexOf('\n', at);
    return new SentReport(message.substring(at, end), numbers, message.substring(end + 1));
  }

  boolean isWhole() {
    return base == 0;
  }

  /** The report as it goes on to the host, with the wall clock's time of it. */
  String withWall(long wallUs, long clockSteps) {
    return "{\"wall_us\":" + wallUs + ",\"clock_steps\":" + clockSteps + "," + text.substring(1);
  }

  String text() {
    return text;
  }

  JsonNode json() {
    return Json.parse(text);
  }
}
