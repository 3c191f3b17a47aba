"""Chooses how long Spark's shuffle and Kafka gather records, by the constraints of all jobs.

The shuffle sends what a writer has gathered after `networkBufferMaxWaitTimeMs`. That is one setting
of the application, read when the tasks of a batch start: all jobs share it, and another value holds
from each job's next batch on. So it is the smallest that any constraint needs. Kafka's own waits
(`fetch.max.wait.ms` of a source, `linger.ms` of a sink) are options of a query: a job gets others
at a restart.

A constraint needs, of what declared service times leave of its promise ℓ, the share that the paper
gives to shipping (Latency guarantees, IV-F), divided among its edges:

    flush ≤ (1 − share) · (ℓ − Σ service) / edges
"""

from collections.abc import Iterable
from typing import Final

from trilithon.engines.spark.stall import floor_ms
from trilithon.model.intent import Constraint
from trilithon.model.job import Job

# The engine's own setting, and the bounds of a choice: less than a millisecond costs throughput and
# gains nothing; the upper bound is Spark's default.
FLUSH_MS: Final = 5
LEAST_FLUSH_MS: Final = 1
MOST_FLUSH_MS: Final = 50
SHIPPING_SHARE: Final = 0.8
FETCH_WAIT: Final = "kafka.fetch.max.wait.ms"
LINGER: Final = "kafka.linger.ms"


def declared_service_ms(job: Job, constraint: Constraint) -> float:
    """The work of a sequence's operators, as far as their profiles declare it."""
    profiles = (job.operator(name).profile for name in constraint.operators)
    return sum(profile.service_ms or 0.0 for profile in profiles if profile is not None)


def needed_flush_ms(job: Job, constraint: Constraint) -> float | None:
    """The longest flush time with which a constraint can be kept; None if it has no edge."""
    if not constraint.edges:
        return None
    left_ms = constraint.mean_latency_ms - declared_service_ms(job, constraint)
    return SHIPPING_SHARE * left_ms / len(constraint.edges)


def flush_time_ms(jobs: Iterable[Job]) -> int:
    """The application's flush time: the smallest that any constraint needs, in whole ms."""
    needed = [
        flush_ms
        for job in jobs
        for constraint in job.intent.constraints
        if (flush_ms := needed_flush_ms(job, constraint)) is not None
    ]
    if not needed:
        return FLUSH_MS
    return max(LEAST_FLUSH_MS, min(MOST_FLUSH_MS, int(min(needed))))


def kafka_waits(job: Job) -> dict[str, int]:
    """Options of a job's sources and sinks, for its next restart; empty without constraints."""
    if not any(constraint.edges for constraint in job.intent.constraints):
        return {}
    longest_ms = flush_time_ms([job])
    return {FETCH_WAIT: longest_ms, LINGER: longest_ms}


def constraint_floor_ms(job: Job, constraint: Constraint, flush_ms: float = FLUSH_MS) -> float:
    """The mean latency below which no parallelism gets a sequence: declared work, half of a flush
    time on each edge, and what pauses between batches cost records that come to a source.
    """
    first = constraint.edges[0].source if constraint.edges else ""
    reads = any(source.name == first for source in job.sources)
    pauses_ms = floor_ms(job, None) if reads else 0.0
    shipping_ms = flush_ms / 2 * len(constraint.edges)
    return declared_service_ms(job, constraint) + shipping_ms + pauses_ms


def unreachable_constraints(job: Job, flush_ms: float = FLUSH_MS) -> list[str]:
    """A sentence for each constraint that no parallelism can keep."""
    sentences = []
    for constraint in job.intent.constraints:
        lowest_ms = constraint_floor_ms(job, constraint, flush_ms)
        if lowest_ms > constraint.mean_latency_ms:
            path = ", ".join(str(part) for part in constraint.sequence)
            sentences.append(
                f"{constraint.mean_latency_ms:g} ms cannot be kept on {path}: declared work, a "
                f"flush time of {flush_ms:g} ms on {len(constraint.edges)} edges and pauses "
                f"between batches take {lowest_ms:.1f} ms. Promise more, or use longer batches."
            )
    return sentences
