// Tests of edge names and stamps.
package io.trilithon.probe;

class NamesTest {
  void anEdgeIsJobFromTo() {
    Check.equal(new EdgeName("tenant/job", "a", "b"), EdgeName.parse("tenant/job/a>b"));
    Check.equal("tenant/job/b", EdgeName.parse("tenant/job/a>b").receiver());
  }

  void aSourceHasNoSender() {
    Check.equal(new EdgeName("j", "", "src"), EdgeName.parse("j/>src"));
    Check.equal(new EdgeName("j", "", "a"), EdgeName.parse("j/a"));
  }

  void whatNamesNoEdgeIsRefused() {
    for (String text : new String[] {"", "job", "/a", "job/", "job/a>"}) {
      Check.refused("is not an edge", () -> EdgeName.parse(text));
    }
  }

  void aStampKeepsTimeAndSender() {
    long timeUs = 1_795_000_000_123_456L;
    for (int ordinal : new int[] {0, 1, 1023}) {
      long stamp = Stamp.pack(timeUs, ordinal);
      Check.equal(timeUs, Stamp.timeUs(stamp));
      Check.equal(ordinal, Stamp.ordinal(stamp));
      Check.that(stamp > 0, "a stamp is positive");
    }
  }
}
