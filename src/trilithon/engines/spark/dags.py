"""Runs jobs of several parts: one name, one state and one intent over several queries.

Each part is a chain that the engine runs like a job of one part: it has a query, a checkpoint and
an entry in the ledger of its own, and is supervised, rescaled and restarted by itself. This module
starts and stops the parts of a job together, divides its allocation among them, and answers for the
whole. A part that is down does not stop the others: what it does not read waits in its topic, and
when that is too much, the part before it is held back.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from trilithon import logs
from trilithon.contract.condition import Cause, Condition, Health
from trilithon.contract.engine import Accepted, Outcome, RestartJob, Status
from trilithon.engines.spark.checkpoint import last_committed, partition_offsets
from trilithon.engines.spark.cut_lags import FREE, CutLags
from trilithon.engines.spark.cut_records import REMEMBERED_IDS
from trilithon.engines.spark.cuts import PartJob, job_of, part_allocation
from trilithon.engines.spark.internal_topics import InternalTopics
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.managed_job import ManagedJob
from trilithon.engines.spark.part_planner import (
    PartPlanner,
    PlannedJob,
    internal_topics,
    part_checkpoint,
)
from trilithon.engines.spark.part_reports import WholeJobs
from trilithon.engines.spark.part_versions import (
    changed_parts,
    check_same_sources,
    check_same_states,
    relinked,
)
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.queries import JobQueries
from trilithon.engines.spark.reallocation import AT_BOUNDARY
from trilithon.errors import DoesNotFit, EngineFailed, NeedsNewCheckpoint, TrilithonError
from trilithon.model.action import REPLAYED, RESTARTED
from trilithon.model.allocation import Allocation, carried_over
from trilithon.model.job import Job

# How long a sender is held back unless it is told again: a host that died stops no job for ever.
HELD_FOR_S: Final = 5.0
PURGE_EVERY_S: Final = 30.0
# How long a new version waits until the cuts that it changes are empty.
DRAIN_S: Final = 60.0
# How long a change waits for the next batch of a part before it changes the next part.
NEXT_BATCH_S: Final = 5.0
_POLL_S: Final = 0.2
_log = logs.logger()


class Chains(Protocol):
    """What runs the parts: the engine."""

    managed: dict[str, ManagedJob]

    def submit_chain(self, job: Job, allocation: Allocation, checkpoint: str) -> Outcome: ...

    def cancel_chain(self, job: str, keep: bool) -> Outcome: ...

    def reallocate_chain(
        self, wanted: Allocation, tasks: dict[str, int] | None = None
    ) -> Outcome: ...

    def grown_tasks(self, wanted: Allocation, free: int) -> dict[str, int] | None: ...

    def restart_chain(self, action: RestartJob) -> Outcome: ...


@dataclass
class Dag:
    """An accepted job of several parts."""

    planned: PlannedJob
    allocation: Allocation
    checkpoint: str

    @property
    def job(self) -> Job:
        return self.planned.job


@dataclass
class Dags:
    """The jobs of several parts of an application."""

    chains: Chains
    queries: JobQueries
    ledger: Ledger
    control: ProbeControl
    topics: InternalTopics
    # Asks Kafka where topics end.
    ends: Callable[[Collection[str]], Mapping[str, int]]
    # Takes the reports of the executors, in which the readers' positions are.
    collect: Callable[[], object]
    # The time of the driver, in which reports are timed: it never steps.
    driver_time_s: Callable[[], float]
    steady_clock: Callable[[], float] = time.monotonic
    lags: CutLags = field(default_factory=CutLags)
    whole: WholeJobs = field(default_factory=WholeJobs)
    accepted: dict[str, Dag] = field(default_factory=dict)
    # One-shot actions are done at most once.
    done: set[str] = field(default_factory=set)
    _purged_s: float = 0.0
    # Up to where partitions of internal topics were deleted last.
    _purged: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @property
    def planner(self) -> PartPlanner:
        return PartPlanner(self.queries.spark, self.queries.kafka, self.topics)

    # -- the whole job

    def submit(self, job: Job, allocation: Allocation, checkpoint: str) -> Outcome:
        """Starts all parts of a job, or none."""
        began = self.steady_clock()
        planned = self.planner.plan(job, checkpoint)
        refused = self._start(planned, allocation, checkpoint)
        if refused is not None:
            if not planned.resumed:
                self.topics.delete(job.id)
            return refused
        self._accept(planned, allocation, checkpoint)
        return Outcome(Status.DONE, took_s=self.steady_clock() - began)

    def _start(
        self, planned: PlannedJob, allocation: Allocation, checkpoint: str
    ) -> Outcome | None:
        """Starts the parts, those behind a cut first. If one is refused, stops the others and
        returns why.
        """
        shares = {part.id: part_allocation(allocation, part) for part in planned.parts}
        entries = {
            chain.job.id: Entry(
                planned.job.tenant,
                sum(self.queries.with_tasks(chain, shares[chain.job.id]).tasks_per_stage),
                shares[chain.job.id].instances,
            )
            for chain in planned.chains
        }
        try:
            self.ledger.reserve_all(entries)
        except DoesNotFit as error:
            return Outcome.of_error(error)
        for part in reversed(planned.parts):
            outcome = self.chains.submit_chain(
                part, shares[part.id], part_checkpoint(checkpoint, part)
            )
            if outcome.status is Status.REFUSED:
                for other in planned.parts:
                    self.chains.cancel_chain(other.id, keep=True)
                    self.ledger.release(other.id)
                message = f"The part {part.operators[0].name}: {outcome.message}"
                return replace(outcome, message=message)
        return None

    def _accept(self, planned: PlannedJob, allocation: Allocation, checkpoint: str) -> None:
        name = planned.job.id
        self.accepted[name] = Dag(planned, allocation, checkpoint)
        self.whole.incarnations.setdefault(name, self.queries.incarnations.begin())
        own = (
            cut.name for part in planned.parts for cut in part.reads.values() if not cut.internal
        )
        self.whole.own_topics[name] = frozenset(own)
        copied = (cut.name for part in planned.parts for cut in part.reads.values() if cut.copied)
        self.whole.broadcast[name] = frozenset(copied)

    def cancel(self, job: str, *, keep: bool) -> Outcome:
        """Stops all parts, those that read the sources first; without `keep` deletes the internal
        topics. If a part does not end, the others are stopped all the same, and the job stays.
        """
        dag, codes, messages = self.accepted[job], [], []
        failed: list[Outcome] = []
        for part in dag.planned.parts:
            outcome = self.chains.cancel_chain(part.id, keep)
            if outcome.status is Status.FAILED:
                failed.append(outcome)
                continue
            codes.append(outcome.code)
            messages.append(outcome.message)
            self.lags.forget(part.id)
        if failed:
            return replace(failed[0], message=" ".join(outcome.message for outcome in failed))
        del self.accepted[job]
        self.whole.forget(job)
        if not keep and (left := self.delete_topics(job)):
            codes.append("TOPICS_LEFT")
            messages.append(left)
        return Outcome(Status.DONE, next(filter(None, codes), ""), " ".join(filter(None, messages)))

    def delete_topics(self, job: str) -> str:
        """Deletes the internal topics of a job that has ended; says so if that failed."""
        try:
            self.topics.delete(job)
        except TrilithonError as error:
            return f"Its internal topics were not deleted: {error.message}"
        return ""

    def reallocate(self, wanted: Allocation) -> Outcome:
        """Changes the parts whose share of the allocation changes; the others run on. A part that
        needs more tasks than it holds is restarted; if that fails, all return to what they had.
        """
        dag = self.accepted[wanted.job]
        if wanted.generation <= dag.allocation.generation:
            return Outcome(Status.UNCHANGED)
        began, before = self.steady_clock(), self.ledger.entries
        changed = self._changed_shares(dag.planned, wanted)
        grown = self._grown(changed)
        self.ledger.reserve_all(
            {
                name: Entry(
                    before[name].tenant,
                    before[name].tasks + self._more_tasks(name, grown),
                    share.instances,
                )
                for name, share in changed.items()
                if name in before
            }
        )
        outcomes: dict[str, Outcome] = {}
        for name, share in changed.items():
            try:
                outcome = self._reallocate_part(share, grown.get(name))
            except Exception:
                self._take_back(dag, wanted.generation + 1, before, outcomes, changed)
                raise
            if outcome.status is Status.FAILED:
                self._take_back(dag, wanted.generation + 1, before, outcomes, changed)
                return replace(outcome, took_s=self.steady_clock() - began)
            outcomes[name] = outcome
        dag.allocation = wanted
        return replace(_joined(outcomes.values()), took_s=self.steady_clock() - began)

    def _grown(self, changed: Mapping[str, Allocation]) -> dict[str, dict[str, int]]:
        """The tasks of the operators of parts that need more than they hold."""
        free, grown = self.ledger.free_tasks, dict[str, dict[str, int]]()
        for name, share in changed.items():
            if (tasks := self.chains.grown_tasks(share, free)) is not None:
                grown[name] = tasks
                free -= self._more_tasks(name, grown)
        return grown

    def _more_tasks(self, part: str, grown: Mapping[str, Mapping[str, int]]) -> int:
        """How many tasks a part gets; below 0 if it gives back more."""
        if part not in grown:
            return 0
        return sum(grown[part].values()) - sum(self.chains.managed[part].tasks.values())

    def _take_back(
        self,
        dag: Dag,
        generation: int,
        entries: Mapping[str, Entry],
        done: Collection[str],
        changed: Iterable[str],
    ) -> None:
        """Returns parts to the shares that they had, of an allocation that failed at one. Those
        that were restarted keep their tasks, idle, until their next restart.
        """
        dag.allocation = replace(dag.allocation, generation=generation)
        for name in changed:
            if name in done:
                share = part_allocation(dag.allocation, dag.planned.by_id[name])
                self.chains.reallocate_chain(share)
            elif name in entries and name in self.ledger.entries:
                self.ledger.reserve(name, entries[name])

    def _reallocate_part(self, share: Allocation, tasks: dict[str, int] | None) -> Outcome:
        """Changes a part. If that ends its batch, waits until the next batch has begun: parts that
        stall at the same time compete for the CPU, and nothing leaves the job meanwhile.
        """
        batch = self.control.batch(share.job)
        outcome = self.chains.reallocate_chain(share, tasks)
        deadline = time.monotonic() + NEXT_BATCH_S
        while (
            outcome.code == AT_BOUNDARY
            and self.control.batch(share.job) == batch
            and time.monotonic() < deadline
        ):
            time.sleep(_POLL_S)
        return outcome

    def _changed_shares(self, planned: PlannedJob, wanted: Allocation) -> dict[str, Allocation]:
        """The shares of the parts for which an allocation is another than they have."""
        shares = {part.id: part_allocation(wanted, part) for part in planned.parts}
        return {
            name: share
            for name, share in shares.items()
            if (managed := self.chains.managed.get(name)) is not None
            and replace(share, generation=0) != replace(managed.allocation, generation=0)
        }

    # -- versions

    def restart(self, action: RestartJob) -> Outcome:
        """Restarts all parts of a job; with another version those that it changes."""
        dag = self.accepted[action.job]
        if action.id in self.done:
            return Outcome(Status.UNCHANGED)
        began, planned, allocation = self.steady_clock(), dag.planned, dag.allocation
        if action.spec is not None:
            planned = self.planner.plan(action.spec, dag.checkpoint)
            allocation = carried_over(dag.allocation, action.spec).next_generation()
        allocation = action.allocation or allocation
        other_links = relinked(dag.planned, planned)
        try:
            check_same_states(dag.planned, planned)
            if other_links:
                check_same_sources(dag.planned, planned)
        except NeedsNewCheckpoint:
            self.topics.delete(action.job, keep=dag.planned.topics)
            raise
        if other_links:
            self.done.add(action.id)
            outcome = self._relink(dag, planned, allocation)
        else:
            same = action.spec is None
            parts = planned.parts if same else self._to_restart(dag.planned, planned, allocation)
            self.done.add(action.id)
            outcome = self._restart_parts(action, dag, planned, allocation, parts)
        return replace(outcome, took_s=self.steady_clock() - began)

    def _to_restart(
        self, before: PlannedJob, after: PlannedJob, allocation: Allocation
    ) -> list[PartJob]:
        """The parts of a new version whose queries differ, and those that need more tasks than they
        hold.
        """
        changed, free = changed_parts(before, after), self.ledger.free_tasks

        def grows(part: PartJob) -> bool:
            share = part_allocation(allocation, part)
            return self.chains.grown_tasks(share, free) is not None

        return [part for part in after.parts if part in changed or grows(part)]

    def _restart_parts(
        self,
        action: RestartJob,
        dag: Dag,
        planned: PlannedJob,
        allocation: Allocation,
        parts: Iterable[PartJob],
    ) -> Outcome:
        """Restarts some parts, one after the other. If one does not start, those before it return
        to the version that they had.
        """
        same_version = planned is dag.planned
        restarted: list[PartJob] = []
        replayed: list[str] = []
        for part in parts:
            spec, share = None if same_version else part, part_allocation(allocation, part)
            step = RestartJob(f"{action.id}:{part.id}", part.id, spec, share)
            try:
                outcome = self.chains.restart_chain(step)
            except TrilithonError as error:
                status = Status.FAILED if restarted else Status.REFUSED
                outcome = Outcome.of_error(error, status)
            if outcome.status is not Status.DONE:
                if not same_version:
                    self._return(dag, restarted, step.id, allocation.generation + 1)
                return outcome
            restarted.append(part)
            replayed += [outcome.message] if outcome.code == REPLAYED else []
        for part in planned.parts:
            if part not in restarted:
                # Its query is the same: only an intent, a bound or a profile may have changed.
                self.chains.managed[part.id].job = part
        for share in self._changed_shares(planned, allocation).values():
            self.chains.reallocate_chain(share)
        self._accept(planned, allocation, dag.checkpoint)
        code = REPLAYED if replayed else ""
        return Outcome(Status.DONE, code, " ".join(dict.fromkeys(replayed)))

    def _return(self, dag: Dag, parts: Iterable[PartJob], id_: str, generation: int) -> None:
        """Restarts parts in the version that they had."""
        dag.allocation = replace(dag.allocation, generation=generation)
        for part in parts:
            before = dag.planned.by_id[part.id]
            share = part_allocation(dag.allocation, before)
            self.chains.restart_chain(RestartJob(f"{id_}:back:{part.id}", part.id, before, share))

    def _relink(self, dag: Dag, planned: PlannedJob, allocation: Allocation) -> Outcome:
        """Starts a version with other cuts, when the old one has emptied its own. The old topics
        and checkpoints stay until the new version runs.
        """
        before, name = dag.planned, planned.job.id
        try:
            self._drain(before)
            refused = None
        except TrilithonError as error:
            refused = Outcome(Status.REFUSED, error.code, error.message)
        for part in before.parts:
            self.chains.cancel_chain(part.id, keep=True)
        if refused is None:
            refused = self._start(planned, allocation, dag.checkpoint)
        if refused is not None:
            dag.allocation = replace(dag.allocation, generation=allocation.generation + 1)
            failed = self._start(before, dag.allocation, dag.checkpoint)
            self.topics.delete(name, keep=before.topics)
            return not_restarted(name, refused, failed)
        self._accept(planned, allocation, dag.checkpoint)
        self.topics.delete(name, keep=planned.topics)
        for part in before.parts:
            self.lags.forget(part.id)
            if part.id not in planned.by_id:
                self.queries.delete_checkpoints(part.id)
            elif part.topics != planned.by_id[part.id].topics:
                self.queries.delete_checkpoint(part.id, part_checkpoint(dag.checkpoint, part))
        return Outcome(Status.DONE)

    def _drain(self, planned: PlannedJob) -> None:
        """Stops the parts in the order of the graph, each when it has read what the parts before it
        wrote.
        """
        deadline = time.monotonic() + DRAIN_S
        for part in planned.parts:
            managed, topics = self.chains.managed[part.id], set(internal_topics(part).values())
            # Nobody writes to them any more: these ends are the last.
            ends = self.ends(topics) if topics else {}
            while any(self.lags.position(part.id, topic) != end for topic, end in ends.items()):
                if time.monotonic() > deadline or managed.running is None:
                    raise EngineFailed(
                        f"{part.id} did not read what waits for it within {DRAIN_S:g} s."
                    )
                self.collect()
                time.sleep(_POLL_S)
            with managed.lock:
                why = self.queries.stop(managed, clean=True)
            committed = self._committed(part.id)
            if why or any(committed.get(topic) != end for topic, end in ends.items()):
                raise EngineFailed(f"{part.id} did not stop between two batches: {why}.")

    # -- what the parts are together

    def jobs(self, conditions: Mapping[str, Condition]) -> dict[str, Accepted]:
        return {
            name: Accepted(
                dag.job,
                dag.allocation,
                conditions[name],
                dag.checkpoint,
                dag.planned.edge_topics,
            )
            for name, dag in list(self.accepted.items())
        }

    def part_with(self, job: str, edge: str) -> str | None:
        """The part inside which both ends of an edge, written `from->to`, are; None without one."""
        if (dag := self.accepted.get(job)) is None:
            return job
        ends = set(edge.split("->"))
        inside = (p.id for p in dag.planned.parts if ends <= {o.name for o in p.operators})
        return next(inside, None)

    def joined(self, conditions: Mapping[str, Condition]) -> dict[str, Condition]:
        """The condition of each job: that of its worst part. Jobs of one part keep theirs."""
        joined = {name: c for name, c in conditions.items() if job_of(name) == name}
        for name, dag in list(self.accepted.items()):
            missing = Condition(Health.FAILED, "It does not run.", Cause.UNKNOWN)
            parts = [(part.operators[0].name, part.id) for part in dag.planned.parts]
            joined[name] = worst([(head, conditions.get(id_, missing)) for head, id_ in parts])
        return joined

    # -- what waits in the cuts

    def lag(self, part: PartJob, topics: Iterable[str]) -> float | None:
        """The records of topics that a part has not read yet; None if that is unknown."""
        return self.lags.lag(
            part.id, topics, self.driver_time_s(), lambda: self._committed(part.id)
        )

    def waiting(self, part: Job) -> dict[str, float]:
        """The records that wait in the topics of cut edges, by the operator that they wait for."""
        if not isinstance(part, PartJob):
            return {}
        first, waiting = part.operators[0].name, 0.0
        instances = self.chains.managed[part.id].allocation.parallelism[first]
        reads = [(part.reads[s.name], s.topics) for s in part.sources if s.name in part.reads]
        for cut, topics in reads:
            if (lag := self.lag(part, topics)) is None:
                return {}
            waiting += lag * instances if cut.copied else lag
        return {first: waiting} if reads else {}

    def hold_back(self) -> None:
        """Slows down the parts before cuts in which much waits."""
        now_s = self.driver_time_s()
        for dag in list(self.accepted.values()):
            writer = {name: part for part in dag.planned.parts for name in part.writes}
            for part in dag.planned.parts:
                for cut, topic in internal_topics(part).items():
                    waited = self.lags.writers_wait(part.id, topic)
                    lag = self.lag(part, (topic,))
                    pace = self.lags.pace_per_s(part.id, topic, lag, now_s)
                    managed = self.chains.managed.get(writer[cut].id)
                    if managed is None:
                        continue  # it is being stopped
                    if pace < FREE:
                        writers = managed.allocation.parallelism[
                            writer[cut].writes[cut].edge.source
                        ]
                        pause_s = writers / pace if pace > 0 else None
                        self.control.hold_back(writer[cut].id, cut, HELD_FOR_S, pause_s)
                    elif waited:
                        self.control.hold_back(writer[cut].id, cut, 0, 0)

    def purge(self) -> None:
        """Deletes what has been read from internal topics, now and then, except the records whose
        ids tell doubles.
        """
        now_s = self.steady_clock()
        if not self.accepted or now_s - self._purged_s < PURGE_EVERY_S:
            return
        self._purged_s = now_s
        before = {
            (topic, number): offset - REMEMBERED_IDS
            for dag in list(self.accepted.values())
            for part in dag.planned.parts
            for (topic, number), offset in self._offsets(part.id).items()
            if topic in internal_topics(part).values() and offset > REMEMBERED_IDS
        }
        if before and before != self._purged:
            try:
                self.topics.purge(before)
                self._purged = before
            except TrilithonError as error:
                _log.warning("topics_not_purged", reason=error.message)

    def _offsets(self, part: str) -> dict[tuple[str, int], int]:
        """The offsets that a part has committed."""
        if (managed := self.chains.managed.get(part)) is None:
            return {}
        checkpoint = self.queries.checkpoint(managed)
        if (committed := last_committed(checkpoint)) is None:
            return {}
        return partition_offsets(checkpoint, committed, len(managed.job.sources))

    def _committed(self, part: str) -> dict[str, int]:
        totals: dict[str, int] = {}
        for (topic, _), offset in self._offsets(part).items():
            totals[topic] = totals.get(topic, 0) + offset
        return totals


def _joined(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of a change that was done in all parts: the code that costs most."""
    special = [outcome for outcome in outcomes if outcome.code]
    codes = {outcome.code for outcome in special}
    code = next((code for code in (REPLAYED, RESTARTED, *sorted(codes)) if code in codes), "")
    return Outcome(Status.DONE, code, " ".join(dict.fromkeys(o.message for o in special)))


def not_restarted(job: str, refused: Outcome, failed: Outcome | None) -> Outcome:
    """The outcome of a version that did not start; `failed` says why the one before does not run
    either.
    """
    message = f"{job} did not restart ({refused.message}); its previous version runs."
    if failed is not None:
        message = (
            f"{job} did not restart ({refused.message}), and neither did its previous version: "
            f"{failed.message}"
        )
    return Outcome(Status.FAILED, refused.code, message)


def worst(conditions: Iterable[tuple[str, Condition]]) -> Condition:
    """The condition of a job, given those of its parts."""
    severity = (Health.FAILED, Health.DEGRADED)
    for health in severity:
        for head, condition in conditions:
            if condition.health is health:
                return replace(condition, reason=f"Part {head}: {condition.reason}")
    notes = [f"Part {head}: {c.reason}" for head, c in conditions if c.reason]
    since = [c.since_s for _, c in conditions if c.since_s is not None]
    return Condition(Health.RUNNING, " ".join(notes), None, max(since, default=None))
