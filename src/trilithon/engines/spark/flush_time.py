"""Chooses how long Spark's shuffle and Kafka's producers gather records before they send them.

A writer of the shuffle sends what it has gathered after `networkBufferMaxWaitTimeMs`. It reads that
setting of the application when its task starts. So all jobs share one flush time, and another one
holds from each job's next batch on. It is the smallest that any job needs:

    a job with batching times        the smallest of its edges'
    a constraint with an edge that   at most the engine's own, and no more than
    has no batching time             share · (promise − declared work) / edges
    any other job                    the engine's own

Where an edge leads over a topic, Kafka's producer gathers, too (`linger.ms`). That is an option of
a query: a job gets another one when it is started again. An edge inside a query has its whole time
for the shuffle, an edge to a sink for the producer, and a cut edge, which passes both, half for
each.

A consumer's `fetch.max.wait.ms` is left alone: as long as `fetch.min.bytes` is 1, Kafka answers
with the first record (`python -m bench.proof_flush_time --parts waits`).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from trilithon.engines.spark.cuts import PartJob, cut_into_parts
from trilithon.model.allocation import Allocation
from trilithon.model.intent import Constraint, EdgeName, Metric
from trilithon.model.job import Job

if TYPE_CHECKING:
    # Plans of jobs are made without Spark.
    from pyspark.sql import SparkSession

FLUSH_TIME: Final = "spark.shuffle.streaming.networkBufferMaxWaitTimeMs"
LINGER: Final = "kafka.linger.ms"
# The engine's own flush time: Spark's, 50 ms, would be most of the latency.
FLUSH_MS: Final = 5
# The bounds of a choice: the setting is in whole milliseconds, and 0 would send every record by
# itself. The credit gate lets 20 records be on their way to an instance, or what it takes in 20 ms:
# hops that take longer than that bound the throughput. With 50 ms, 1,000 records/s became 800
# (`python -m bench.proof_flush_time`). The longest is half of the gate's time.
LEAST_FLUSH_MS: Final = 1
MOST_FLUSH_MS: Final = 10
# The policy `latency` gives waiting the other half (`waiting_share_alone`).
SHIPPING_SHARE: Final = 0.5

JobState = tuple[Job, Allocation]


def declared_service_ms(job: Job, constraint: Constraint) -> float:
    """The work of a sequence's operators, as far as their profiles declare it."""
    profiles = (job.operator(name).profile for name in constraint.operators)
    return sum(profile.service_ms or 0.0 for profile in profiles if profile is not None)


def flush_limit_ms(job: Job, wanted: Allocation, own_ms: float = FLUSH_MS) -> float:
    """The longest flush time with which a job can keep what it promises; see the module."""
    sinks = {sink.name for sink in job.sinks}
    cuts = _cut_edges(job) if wanted.batching_ms else set()
    limits = [
        wait_ms / 2 if edge in cuts else wait_ms
        for edge, wait_ms in wanted.batching_ms.items()
        if edge.target not in sinks
    ]
    # Batching times are made from constraints: a threshold on latency is not in them.
    if not limits or any(t.metric is Metric.LATENCY for t in job.intent.thresholds):
        limits.append(own_ms)
    # A constraint that is not measured yet gave no batching times: its promise counts.
    for constraint in job.intent.constraints:
        if any(edge not in wanted.batching_ms for edge in constraint.edges):
            left_ms = constraint.mean_latency_ms - declared_service_ms(job, constraint)
            limits += [own_ms, SHIPPING_SHARE * left_ms / len(constraint.edges)]
    return min(limits)


def flush_time_ms(jobs: Iterable[JobState], own_ms: int = FLUSH_MS) -> int:
    """The flush time of an application with these jobs, in whole ms."""
    limits_ms = [flush_limit_ms(job, wanted, own_ms) for job, wanted in jobs]
    if not limits_ms:
        return own_ms
    return max(LEAST_FLUSH_MS, min(max(MOST_FLUSH_MS, own_ms), int(min(limits_ms))))


def writer_waits(job: Job, wanted: Allocation) -> dict[str, str]:
    """Options of the Kafka writer of a whole job or of one of its parts: as long as the edges that
    it writes may gather. None without batching times: Kafka's producer sends at once.
    """
    sinks = {sink.name for sink in job.sinks}
    cuts = {c.name: c.edge.name for c in job.writes.values()} if isinstance(job, PartJob) else {}
    waits_ms = [
        wait_ms / 2 if edge.target in cuts else wait_ms
        for edge in job.edges
        if edge.target in sinks
        and (wait_ms := wanted.batching_ms.get(cuts.get(edge.target, edge.name))) is not None
    ]
    return {LINGER: str(int(min(waits_ms)))} if waits_ms else {}


def later_lingers(job: Job, before: Allocation, wanted: Allocation) -> list[EdgeName]:
    """The edges that Kafka's producers write and that gather for another time after a restart."""
    sinks, cuts = {sink.name for sink in job.sinks}, _cut_edges(job)
    return [
        edge.name
        for edge in job.edges
        if (edge.target in sinks or edge.name in cuts)
        and before.batching_ms.get(edge.name) != wanted.batching_ms.get(edge.name)
    ]


def _cut_edges(job: Job) -> set[EdgeName]:
    return {cut.edge.name for cut in cut_into_parts(job).cuts}


def own_flush_ms(spark: "SparkSession") -> int:
    """The flush time with which an application was started."""
    conf: Any = spark.sparkContext._jsc.sc().conf()  # noqa: SLF001 - Spark parses its own units
    return int(conf.getTimeAsMs(FLUSH_TIME, f"{FLUSH_MS}ms"))
