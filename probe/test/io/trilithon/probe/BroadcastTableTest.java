// What an instance knows of the rows that were broadcast to it.
package io.trilithon.probe;

import org.apache.spark.unsafe.types.UTF8String;

class BroadcastTableTest {
  private static UTF8String text(String text) {
    return UTF8String.fromString(text);
  }

  void theLatestRowOfAKeyIsKnown() {
    BroadcastTable table = new BroadcastTable(10);
    Check.equal(null, table.get(text("a")));
    table.put(text("a"), text("1"));
    table.put(text("a"), text("2"));
    Check.equal(text("2"), table.get(text("a")));
  }

  void theOldestKeyGoesIfThereAreTooMany() {
    BroadcastTable table = new BroadcastTable(2);
    for (String key : new String[] {"a", "b", "a", "c"}) {
      table.put(text(key), text(key));
    }
    Check.equal(null, table.get(text("b")));
    Check.equal(text("a"), table.get(text("a")));
  }

  void anInstanceHasATableOfItsOwnWhileItsJobRuns() {
    Registry registry = new Registry();
    InstanceKey key = new InstanceKey("j", "filter", 0, 3);
    registry.broadcast(key).put(text("a"), text("1"));
    Check.equal(null, registry.broadcast(new InstanceKey("j", "filter", 1, 3)).get(text("a")));
    registry.forget("j", 3);
    Check.equal(text("1"), registry.broadcast(key).get(text("a")));
    registry.forget("j", 4);
    Check.equal(null, registry.broadcast(key).get(text("a")));
  }
}
