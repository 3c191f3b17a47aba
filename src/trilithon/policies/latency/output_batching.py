"""Chooses how long the edges of constrained sequences gather records at their senders.

Latency guarantees, sections III and IV-F. What task latencies leave of a promise is divided: a
share is for waiting in queues (Ŵ), the rest for shipping. The paper's algorithm for batching is in
an earlier paper; this one is chosen:

    left = 0.9 · ℓ − Σ task
    budget = min((1 − share) · left, left − Σ waiting) − Σ transport
    each edge of the sequence may gather for budget / edges

That is the longest time that a record waits at its sender; the mean is between half of that and all
of it, by how many records come meanwhile. Where few come it is nearly all of it: a tenth of the
promise is left alone, since means of intervals vary. Batching gives way while queues are long. If
not even its end would keep the promise, it stays at its full share: shipping more often costs CPU,
of which there is too little then. An edge in several sequences has the smallest of their times.

On an engine that changes batching only at the end of a batch, it cannot follow queues: it has its
full share, and is changed for a larger difference. Waiting has the share that it has where batching
is not adapted at all.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from trilithon.model.intent import EdgeName
from trilithon.policies.latency.sequence import ConstrainedSequence

# Chosen: how much of a promise batching may fill, together with everything else.
FILLED: Final = 0.9
# Chosen: a limit is changed if it would be other by this share, live and at the end of a batch, and
# one below this is none.
WORTH: Final = 0.1
WORTH_AT_BOUNDARY: Final = 0.25
LEAST_MS: Final = 0.1


def longest_batching_s(
    sequence: ConstrainedSequence, waiting_share: float, *, live: bool = True
) -> float:
    """How long each edge of a sequence may gather records."""
    if not sequence.edges:
        return 0.0
    left_s = FILLED * sequence.limit_s - sequence.task_s
    full_s = (1 - waiting_share) * left_s - sequence.other_s
    now_s = left_s - sequence.waiting_s - sequence.other_s
    budget_s = min(full_s, now_s) if live and now_s > 0 else full_s
    return max(0.0, budget_s) / len(sequence.edges)


def batching_limits_ms(
    sequences: Sequence[ConstrainedSequence],
    now_ms: Mapping[EdgeName, float],
    waiting_share: float,
    *,
    live: bool = True,
) -> dict[EdgeName, float]:
    """The limits that change, by edge; `live` if the engine changes them while records flow."""
    worth = WORTH if live else WORTH_AT_BOUNDARY
    wanted: dict[EdgeName, float] = {}
    for sequence in sequences:
        limit_ms = 1000 * longest_batching_s(sequence, waiting_share, live=live)
        limit_ms = 0.0 if limit_ms < LEAST_MS else float(f"{limit_ms:.3g}")
        for edge in sequence.edges:
            wanted[edge.name] = min(wanted.get(edge.name, limit_ms), limit_ms)
    return {
        edge: limit_ms
        for edge, limit_ms in wanted.items()
        if abs(limit_ms - now_ms.get(edge, 0.0)) > worth * max(limit_ms, now_ms.get(edge, 0.0))
    }
