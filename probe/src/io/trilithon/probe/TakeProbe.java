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
    long nowUs = registry.clock.nowUs();
    // A source's stamp is the origin time, a wall clock's.
    long stampUs = cell != null ? Stamp.timeUs(stamp)
        : stamp > 0 ? nowUs - registry.clock.sinceUs(stamp) : 0;
    receiver.take(edge, stampUs, nowUs, System.nanoTime(), originUs);
    if (cell != null) {
      cell.took(Stamp.ordinal(stamp), receiver.key.index());
    }
  }
}
