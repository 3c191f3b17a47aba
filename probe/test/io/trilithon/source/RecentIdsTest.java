package io.trilithon.source;

import io.trilithon.probe.Check;
import java.nio.charset.StandardCharsets;

/** Doubles are told by the ids of the records before them. */
public final class RecentIdsTest {
  private static byte[] id(int number) {
    return ("clicks-0-" + number).getBytes(StandardCharsets.UTF_8);
  }

  public void aRecordIsADoubleIfOneBeforeItHasItsId() {
    RecentIds ids = new RecentIds(100);
    Check.that(ids.first(id(1), 10), "the first");
    Check.that(ids.first(id(2), 11), "another");
    Check.that(!ids.first(id(1), 12), "a double");
  }

  public void aRecordThatIsReadAgainIsNoDoubleOfItself() {
    RecentIds ids = new RecentIds(100);
    ids.first(id(1), 10);
    ids.first(id(1), 12);
    Check.that(ids.first(id(1), 10), "the first again");
    Check.that(!ids.first(id(1), 12), "the double again");
  }

  public void idsThatAreReadLaterButStandBeforeCount() {
    RecentIds ids = new RecentIds(100);
    Check.that(ids.first(id(1), 10), "known first");
    Check.that(ids.first(id(1), 5), "stands before it");
    Check.that(!ids.first(id(1), 10), "so it is a double");
  }

  public void asManyIdsAsAskedForAreKnownAndNotManyMore() {
    int kept = 5000;
    RecentIds ids = new RecentIds(kept);
    int count = 4 * kept;
    for (int i = 0; i < count; i++) {
      Check.that(ids.first(id(i), i), "new");
    }
    for (int i = count - kept; i < count; i++) {
      Check.that(!ids.first(id(i), count + i), "remembered: " + i);
    }
    Check.that(ids.first(id(0), 3 * count), "forgotten");
    Check.equal(3L * count + 1, ids.next());
  }

  public void whatIsKnownIsContinuedWhereItEnds() {
    RecentIds ids = new RecentIds(10);
    Check.equal(-1L, ids.next());
    ids.knownUntil(7);
    Check.equal(7L, ids.next());
    ids.first(id(1), 7);
    ids.knownUntil(3);
    Check.equal(8L, ids.next());
  }
}
