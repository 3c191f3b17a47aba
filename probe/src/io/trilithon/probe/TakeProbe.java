// The receiving end of one edge in one task.
package io.trilithon.probe;

final class TakeProbe {
  final Instance receiver;
  private final Inbound edge;
  private final CreditCell cell;
  private final Registry registry;

  /** A source returns no credits: its cell is null. */
  TakeProbe(Registry registry, EdgeName name, Instance receiver, CreditCell cell) {
    this.registry = registry;
    this.receiver = receiver;
    this.cell = cell;
    edge = receiver.inbound(name.from());
  }

  void take(long stamp, long originUs) {
    long stampUs = cell == null ? stamp : Stamp.timeUs(stamp);
    receiver.take(edge, stampUs, registry.clock.nowUs(), System.nanoTime(), originUs);
    if (cell != null) {
      cell.took(Stamp.ordinal(stamp), receiver.key.index());
    }
  }
}
