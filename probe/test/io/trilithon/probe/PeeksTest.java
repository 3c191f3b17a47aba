package io.trilithon.probe;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.unsafe.types.UTF8String;

/** A few records of an edge inside a query reach whoever looks, and only while somebody does. */
public final class PeeksTest {
  private static final String EDGE = "t/j/a>b";
  private static final UTF8String NAME = UTF8String.fromString(EDGE);

  public void recordsOfAWatchedEdgeReachTheDriver() {
    PeekBoard board = new PeekBoard();
    Peeks peeks = new Peeks();
    peeks.learn(board.watched(0));
    Check.that(!peeks.wants(NAME), "nobody looks");
    board.watch(EDGE, 1000);
    peeks.learn(board.watched(999));
    Check.that(peeks.wants(NAME), "somebody looks");
    Check.that(!peeks.wants(UTF8String.fromString("t/j/b>c")), "not at another edge");
    peeks.show(NAME, UTF8String.fromString("{\"n\":1}"), 3, 2_500_000);
    board.seen(peeks.drain());
    ObjectNode record = (ObjectNode) board.records(EDGE).get(0);
    Check.equal("{\"n\":1}", record.path("value").asText());
    Check.equal(3, record.path("instance").asInt());
    Check.equal(2.5, record.path("time_s").asDouble());
    Check.equal(0, peeks.drain().size());
    peeks.learn(board.watched(1000));
    Check.that(!peeks.wants(NAME), "nobody looks any more");
    Check.equal(0, board.records(EDGE).size());
  }

  public void onlyAFewAndTheLatestAreKept() {
    PeekBoard board = new PeekBoard();
    Peeks peeks = new Peeks();
    board.watch(EDGE, 1000);
    peeks.learn(board.watched(0));
    for (int i = 0; i < 2 * PeekBoard.KEPT; i++) {
      Check.that(peeks.wants(NAME), "there is room");
      peeks.show(NAME, UTF8String.fromString(Integer.toString(i)), 0, i);
      if (i % Peeks.MOST == Peeks.MOST - 1) {
        Check.that(!peeks.wants(NAME), "no more until the next exchange");
        board.seen(peeks.drain());
        board.watch(EDGE, 1000 + i);
      }
    }
    ArrayNode records = board.records(EDGE);
    Check.equal(PeekBoard.KEPT, records.size());
    Check.equal("50", records.get(0).path("value").asText());
    Check.equal("99", records.get(PeekBoard.KEPT - 1).path("value").asText());
  }

  public void longRecordsAreCutOff() {
    Peeks peeks = new Peeks();
    peeks.learn(Json.array().add(EDGE));
    peeks.show(NAME, UTF8String.fromString("x".repeat(2 * Peeks.MAX_CHARS)), 0, 0);
    String shown = peeks.drain().path(EDGE).get(0).path("value").asText();
    Check.equal(Peeks.MAX_CHARS + 1, shown.length());
  }
}
