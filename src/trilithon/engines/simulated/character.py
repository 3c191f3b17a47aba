"""Defines characters: which engine is simulated, by how it sends, parks, reconfigures and recovers.

`spark-rtm` behaves like the Spark engine; its numbers are measurements, and `trilithon calibrate`
makes others from a recording. `storm` behaves like the engine of Henge and Stela, `heron` like that
of Dhalion; what the papers leave open is chosen elsewhere and given here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from trilithon.contract.engine import Ability, How
from trilithon.engines.abilities import REAL_TIME
from trilithon.engines.spark.stall import BASE_S, PER_TASK_S

# The flush time of the shuffle is a part of `transit_s` and does not change.
_REAL_TIME: Final = {**REAL_TIME, Ability.BATCHING: How.NOT_AT_ALL}
_WITH_OUTAGE: Final = {
    **dict.fromkeys(Ability, How.WITH_OUTAGE),
    Ability.BATCHING: How.LIVE,
    Ability.ADD_MACHINES: How.LIVE,
}


class QueuedRecords(StrEnum):
    """What becomes of records in queues when the instances of a job are changed."""

    KEPT = "kept"  # each where it is
    DEALT = "dealt"  # among the instances that there are now
    LOST = "lost"  # with the processes that held them: at most once


@dataclass(frozen=True, slots=True)
class Character:
    """An engine in numbers. A length of 0 is "at once"; `credits` of None is "no bound"."""

    name: str
    # Records in flight to an instance: so many, or what it took in so long, whichever is more.
    credits: int | None
    credit_s: float
    # How long a record travels over an edge when nothing waits: a floor under the latency that no
    # allocation removes. And how long it is read for before.
    transit_s: float
    fetch_s: float
    # What a reader needs for a record.
    reader_s: float
    # Whether the instances of a first operator take from the log themselves.
    pulls: bool
    # From an action to its effect, and how long the job is paused in between.
    act_s: float
    outage_s: float
    # From a crash or a wanted restart until the job runs again.
    restart_s: float
    # How much longer it is paused if it has state to read back.
    state_s: float = 0.0
    # What becomes of the records that wait for a job's instances when it is changed.
    waiting: QueuedRecords = QueuedRecords.KEPT
    # Whether operators that keep state can have more or fewer instances.
    state_moves: bool = False
    # At the end of each batch, after it was drained: a constant and a part per task. 0: no batches.
    stall_s: float = 0.0
    stall_per_task_s: float = 0.0
    # Whether what was read since the last boundary is read again after a crash.
    replays: bool = False
    # Runnable threads that are always there: driver and broker, on the first machine.
    constant_load: float = 0.0
    # The part of a core that a thread costs by being there, idle or not, and what a switch between
    # two threads costs where there are more of them than cores.
    thread_cores: float = 0.0
    switch_s: float = 0.0
    # Whether tasks that are not in use are threads, too.
    holds_tasks: bool = False
    # Whether an instance whose queue is full (`credits`) stops all sources of its job, until the
    # queue is down to this part; by default it holds back those that send to it.
    stops_sources: bool = False
    low_mark: float = 1.0
    # Whether sources make records themselves: then none waits in a log while they are stopped.
    generates: bool = False
    # Whether machines report their memory, which Spark's probes do not.
    reports_memory: bool = False
    # The CPU time that a shipment over an edge costs its sender, and how many bytes of records a
    # batch may have for one receiver before it leaves; None is "any". Only of single records.
    ship_s: float = 0.0
    buffer_bytes: float | None = None
    # Whether each partition of a source has a reader of its own, on a machine of its own as far as
    # there are enough. Only of single records.
    reader_per_partition: bool = False
    how: Mapping[Ability, How] = field(default_factory=lambda: _REAL_TIME)

    @property
    def events_only(self) -> bool:
        """Whether flows do not know what this engine does."""
        return self.ship_s > 0 or self.reader_per_partition

    @property
    def has_batches(self) -> bool:
        return self.stall_s > 0 or self.stall_per_task_s > 0


# Measured: credits and the time to act in decision 7, the stall as of the Spark engine. Transport,
# reading and constant load are the medians of the three calibrations that `trilithon bench
# sim-vs-spark --into FOLDER` leaves; a restart is what `python -m bench.restarts` prints and the
# supervisor's first wait. `python -m bench.gate_ceiling` prints how fast one reader reads, and
# `python -m bench.idle_tasks` what a task costs; the constant load is without that of the tasks.
# A switch costs what it costs with `storm` (`scenarios/chosen.yaml`).
SPARK_RTM: Final = Character(
    name="spark-rtm",
    credits=20,
    credit_s=0.020,
    transit_s=0.0024,
    fetch_s=0.0038,
    reader_s=9e-6,
    pulls=False,
    act_s=0.1,
    outage_s=0.0,
    restart_s=2.0,
    stall_s=BASE_S,
    stall_per_task_s=PER_TASK_S,
    replays=True,
    constant_load=0.41,
    thread_cores=0.0029,
    switch_s=3.8e-6,
    holds_tasks=True,
)


# What Nephele can change while records flow: "spinning up new tasks is a fast operation", and a
# scale-down drains queues first (Latency guarantees, section V). Batching is per edge.
_LIVE: Final = {
    **dict.fromkeys(Ability, How.LIVE),
    Ability.RESTART_INSTANCE: How.WITH_OUTAGE,
    Ability.RESTART_JOB: How.WITH_OUTAGE,
}


def nephele(
    *,
    ship_s: float,
    buffer_bytes: float,
    transit_s: float,
    queue: int,
    start_s: float,
    restart_s: float,
    thread_cores: float = 0.0,
    switch_s: float = 0.0,
) -> Character:
    """The engine of the latency guarantees: shipments that cost CPU, output batching per edge,
    bounded input queues, and instances that come and go without an outage.
    """
    return Character(
        name="nephele",
        credits=queue,
        credit_s=0.0,
        transit_s=transit_s,
        fetch_s=0.0,
        reader_s=0.0,
        pulls=False,
        act_s=start_s,
        outage_s=0.0,
        restart_s=restart_s,
        state_moves=True,
        thread_cores=thread_cores,
        switch_s=switch_s,
        ship_s=ship_s,
        buffer_bytes=buffer_bytes,
        reader_per_partition=True,
        how=_LIVE,
    )


def storm(
    *,
    transit_s: float,
    outage_s: float,
    restart_s: float,
    state_s: float = 0.0,
    waiting: QueuedRecords = QueuedRecords.LOST,
    act_s: float = 0.0,
    thread_cores: float = 0.0,
    switch_s: float = 0.0,
) -> Character:
    """The engine of the papers: unbounded queues, sources that scale, an outage per change."""
    return Character(
        name="storm",
        credits=None,
        credit_s=0.0,
        transit_s=transit_s,
        fetch_s=0.0,
        reader_s=0.0,
        pulls=True,
        act_s=act_s,
        outage_s=outage_s,
        restart_s=restart_s,
        state_s=state_s,
        waiting=waiting,
        state_moves=True,
        reports_memory=True,
        thread_cores=thread_cores,
        switch_s=switch_s,
        how=_WITH_OUTAGE,
    )


def heron(
    *, queue: int, low_mark: float, transit_s: float, outage_s: float, restart_s: float
) -> Character:
    """The engine of Dhalion (sections 3.2 and 6.2): long queues, of which a full one stops all
    spouts; spouts that make their sentences; nothing flows during a change. Flows only: its queues
    hold more records than single ones can be followed.
    """
    return Character(
        name="heron",
        credits=queue,
        credit_s=0.0,
        transit_s=transit_s,
        fetch_s=0.0,
        reader_s=0.0,
        pulls=True,
        act_s=0.0,
        outage_s=outage_s,
        restart_s=restart_s,
        waiting=QueuedRecords.DEALT,
        state_moves=True,
        stops_sources=True,
        low_mark=low_mark,
        generates=True,
        reports_memory=True,
        how={
            **_WITH_OUTAGE,
            Ability.WEIGHTS: How.NOT_AT_ALL,
            Ability.AVOIDED_TASKS: How.NOT_AT_ALL,
        },
    )
