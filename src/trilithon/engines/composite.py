"""Runs jobs on several applications as if they were one engine: one for each tenant or group.

An application is started when its first job comes, and ended when it has had none for a while. One
that does not answer is started again by itself; its jobs are `degraded` meanwhile, and those of the
others do not notice. One ledger bounds the slots of all applications: what one gives back, any
other can get.

Called by one thread, as an engine of the controller is; `applications` and `want` by any.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from trilithon import logs
from trilithon.contract.condition import Cause, Condition, Health
from trilithon.contract.engine import (
    Ability,
    Accepted,
    Action,
    AddMachines,
    Capabilities,
    Engine,
    How,
    Outcome,
    Reallocate,
    RemoveMachines,
    RestartInstance,
    Status,
)
from trilithon.engines.application_names import ApplicationNames
from trilithon.engines.job_starts import JobStarts, StartRequest
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.errors import DoesNotFit, HostStarting, HostUnreachable, TrilithonError
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job, tenant_of
from trilithon.model.layout import NodeKey
from trilithon.model.report import Report

# How long an application without jobs goes on: its next job need not wait for Spark.
IDLE_S: Final = 60.0
# How long a caller waits for a job to start, before the jobs of others have their turn.
START_S: Final = 0.5
# From what costs least to what cannot be done.
_COSTS: Final = (How.LIVE, How.AT_BOUNDARY, How.WITH_OUTAGE, How.NOT_AT_ALL)
# A cluster's workers belong to no application, and neither do its slots to its machines.
_NO_MACHINES: Final = {
    Ability.ADD_MACHINES: How.NOT_AT_ALL,
    Ability.REMOVE_MACHINES: How.NOT_AT_ALL,
}
UNCHANGED: Final = Outcome(Status.UNCHANGED)
T = TypeVar("T")
_log = logs.logger()


class Application(Protocol):
    """An engine that is started on demand and may die: a process of its own.

    Whatever calls it raises `HostUnreachable` while it does not answer.
    """

    @property
    def reads(self) -> Engine:
        """For calls that change nothing: they fail soon if the application hangs."""

    @property
    def changes(self) -> Engine:
        """For calls that change something, and may take as long as a job takes to stop."""

    def connect(self) -> Engine:
        """For the start of a job, by another thread. Whoever asked for it closes it; that leaves
        the application as it is.
        """

    def begin(self) -> None:
        """Starts it unless it runs or is being started, and does not wait."""

    @property
    def starting(self) -> bool:
        """Whether it has been started and does not answer yet."""

    @property
    def ended(self) -> bool:
        """Whether it was ended on purpose or never started: not one that died."""

    @property
    def failure(self) -> str:
        """Why its last start failed; empty if it did not."""

    def end(self) -> None:
        """Ends it, and does not wait until it is gone."""

    def disconnect(self) -> None:
        """Leaves it as it is."""


class State(StrEnum):
    """The state of an application, for people."""

    STARTING = "starting"
    RUNNING = "running"
    LOST = "lost"  # it does not answer; it is started again if it died


@dataclass(frozen=True, slots=True)
class ApplicationStatus:
    """What is known of an application: its name, its state since a time, and its jobs."""

    name: str
    state: State
    since_s: float
    jobs: tuple[str, ...]


@dataclass
class _Member:
    """An application that runs or should run, and what it last said."""

    application: Application
    names: ApplicationNames
    starts: JobStarts
    state: State
    since_s: float
    # By name. Replaced, never changed: other threads read it.
    jobs: Mapping[str, Accepted] = field(default_factory=dict)
    placed: Mapping[NodeKey, tuple[int, ...]] = field(default_factory=dict)
    idle_since_s: float | None = None

    @property
    def name(self) -> str:
        return self.names.application


class CompositeEngine:
    """An engine over applications. `application` makes the one of a name, `application_of` names
    the one of a tenant; `running` are the names of those that may run already.
    """

    def __init__(
        self,
        application: Callable[[str], Application],
        application_of: Callable[[str], str],
        *,
        slots: int,
        how: Mapping[Ability, How],
        running: Iterable[str] = (),
        idle_s: float = IDLE_S,
        start_s: float = START_S,
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._application, self._application_of = application, application_of
        self._how = {**how, **_NO_MACHINES}
        self._ledger = Ledger(0, slots)
        self._start_s = start_s
        self._idle_s, self._clock, self._steady_clock = idle_s, clock, steady_clock
        # One per name, kept when it has ended: it knows how often it died.
        self._applications: dict[str, Application] = {}
        self._members: dict[str, _Member] = {}
        self._wanted: set[str] = set()
        # Called, by any thread, when an application answers that did not before, and when the start
        # of a job has ended that nobody waited for: there is something to do.
        self.on_return: Callable[[], None] = lambda: None
        for name in running:
            self._join(name)

    # Jobs.

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        if self._member_with(job.id) is not None:
            return UNCHANGED
        member = self._join(self._application_of(job.tenant))
        try:
            self._ledger.reserve(job.id, Entry(job.tenant, 0, allocation.instances))
        except DoesNotFit as error:
            return Outcome.of_error(error)
        request = StartRequest(job, member.names.own_allocation(allocation), checkpoint)
        outcome, lasts = None, False
        try:
            outcome = self._reached(member, lambda: member.starts.outcome(request, self._start_s))
            if lasts := outcome is None:
                raise HostStarting(f"{job.id} is being started.", "Ask again.")
        finally:
            if not lasts and (outcome is None or outcome.status is not Status.DONE):
                self._ledger.release(job.id)
        if outcome.status is Status.DONE:
            accepted = Accepted(job, allocation, checkpoint=checkpoint)
            member.jobs = {**member.jobs, job.id: accepted}
            member.idle_since_s = None
        elif outcome.status is Status.UNCHANGED:
            self._read_jobs(member)
        return outcome

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        member = self._member_with(job)
        if member is None:
            name = self._application_of(tenant_of(job))
            if keep and name not in self._members:
                return UNCHANGED
            # Without `keep` there may be checkpoints to delete: an application is needed for that.
            member = self._join(name)
        outcome = self._change(member, lambda engine: engine.cancel(job, keep))
        if outcome.applied:
            member.starts.forget(job)
            member.jobs = {name: other for name, other in member.jobs.items() if name != job}
            self._ledger.release(job)
        return outcome

    def apply(self, action: Action) -> Outcome:
        if isinstance(action, AddMachines | RemoveMachines):
            return Outcome(
                Status.REFUSED,
                "CANNOT_ADD_MACHINES"
                if isinstance(action, AddMachines)
                else "CANNOT_REMOVE_MACHINES",
                "Several applications share the machines: none of them can add or remove one. "
                "Start or stop workers yourself.",
            )
        if (member := self._member_with(action.job)) is None:
            return Outcome(Status.REFUSED, "NOT_FOUND", f"There is no job {action.job}.")
        accepted = member.jobs[action.job]
        wanted = None if isinstance(action, RestartInstance) else action.allocation
        if (
            isinstance(action, Reallocate)
            and action.allocation.generation <= accepted.allocation.generation
        ):
            return UNCHANGED
        own, before = member.names.own_action(action), self._ledger.entries.get(action.job)
        instances = (wanted or accepted.allocation).instances
        try:
            self._ledger.reserve(action.job, Entry(accepted.job.tenant, 0, instances))
        except DoesNotFit as error:
            return Outcome.of_error(error)
        outcome = None
        try:
            outcome = self._change(member, lambda engine: engine.apply(own))
        finally:
            if outcome is None or outcome.status is not Status.DONE:
                self._put_back(action.job, before)
        if outcome.status is Status.DONE:
            if isinstance(action, Reallocate):
                changed = replace(accepted, allocation=action.allocation)
                member.jobs = {**member.jobs, action.job: changed}
            else:
                self._read_jobs(member)
        return outcome

    def _member_with(self, job: str) -> _Member | None:
        """The application that runs a job. It stays there when its tenant is given another one,
        until it is paused and resumed.
        """
        return next((m for m in self._members.values() if job in m.jobs), None)

    def _put_back(self, job: str, entry: Entry | None) -> None:
        self._ledger.release(job)
        if entry is not None:
            self._ledger.entries = {**self._ledger.entries, job: entry}

    # What the applications say.

    def want(self, tenant: str) -> None:
        """Has the application of a tenant started soon, before it has a job."""
        self._wanted.add(self._application_of(tenant))

    def jobs(self) -> Mapping[str, Accepted]:
        while self._wanted:
            member = self._join(self._wanted.pop())
            if member.state is not State.RUNNING:
                member.application.begin()
        jobs: dict[str, Accepted] = {}
        for member in list(self._members.values()):
            self._read_jobs(member)
            jobs |= {
                name: replace(accepted, condition=_lost(member))
                if member.state is State.LOST
                else accepted
                for name, accepted in member.jobs.items()
            }
        # One that failed gave its slots back. Entries of applications that do not answer stay.
        starting = [s for member in self._members.values() for s in member.starts.under_way]
        self._ledger.entries = {
            **{s.job.id: Entry(s.job.tenant, 0, s.allocation.instances) for s in starting},
            **{
                name: Entry(accepted.job.tenant, 0, accepted.allocation.instances)
                for name, accepted in jobs.items()
                if accepted.health is not Health.FAILED
            },
        }
        return jobs

    def _read_jobs(self, member: _Member) -> None:
        answer = self._read(member, lambda engine: engine.jobs())
        if answer is not None:
            member.jobs = {name: member.names.accepted(job) for name, job in answer.items()}
            for name in answer:
                member.starts.forget(name)

    def conditions(self) -> Mapping[str, Condition]:
        conditions: dict[str, Condition] = {}
        for member in list(self._members.values()):
            answer = self._read(member, lambda engine: engine.conditions())
            if answer is not None:
                conditions |= answer
            elif member.state is State.LOST:
                conditions |= dict.fromkeys(member.jobs, _lost(member))
        return conditions

    def reports(self) -> Sequence[Report]:
        reports: list[Report] = []
        for member in list(self._members.values()):
            answer = self._read(member, lambda engine: engine.reports())
            for report in answer or ():
                placed = None
                if report.placed is not None:
                    member.placed = report.placed
                    placed = {
                        key: indices
                        for other in self._members.values()
                        for key, indices in other.placed.items()
                    }
                reports.append(member.names.report(report, placed))
            self._end_if_idle(member)
        return reports

    def capabilities(self) -> Capabilities:
        answers = [
            answer
            for member in list(self._members.values())
            if (answer := self._read(member, lambda engine: engine.capabilities())) is not None
        ]
        tasks = [answer.tasks for answer in answers if answer.tasks is not None]
        how = {
            ability: max((answer.of(ability) for answer in answers), key=_COSTS.index, default=own)
            for ability, own in self._how.items()
        }
        return Capabilities(
            {**how, **_NO_MACHINES},
            slots=self._ledger.slots,
            tasks=sum(tasks) if tasks else None,
            fixed={job: fixed for answer in answers for job, fixed in answer.fixed.items()},
            tasks_held={job: held for answer in answers for job, held in answer.tasks_held.items()},
        )

    def applications(self) -> tuple[ApplicationStatus, ...]:
        """The applications that run or should run, by name."""
        members = sorted(dict(self._members).items())
        return tuple(
            ApplicationStatus(name, member.state, member.since_s, tuple(sorted(member.jobs)))
            for name, member in members
        )

    def close(self) -> None:
        """Leaves the applications running, as a host outlives its daemon."""
        for application in self._applications.values():
            application.disconnect()

    def end(self) -> None:
        """Ends all applications with their jobs; checkpoints stay."""
        for member in list(self._members.values()):
            self._end(member)

    # The lives of applications.

    def _join(self, name: str) -> _Member:
        if (member := self._members.get(name)) is not None:
            return member
        if name not in self._applications:
            self._applications[name] = self._application(name)
        application = self._applications[name]
        member = _Member(
            application,
            ApplicationNames(name),
            JobStarts(lambda start: _start(application, start), self._started_late),
            State.STARTING,
            self._clock(),
        )
        self._members = {**self._members, name: member}
        return member

    def _started_late(self) -> None:
        self.on_return()

    def _leave(self, member: _Member) -> None:
        member.starts.close()
        member.application.disconnect()
        self._members = {n: other for n, other in self._members.items() if other is not member}

    def _change(self, member: _Member, call: Callable[[Engine], Outcome]) -> Outcome:
        return self._reached(member, lambda: call(member.application.changes))

    def _reached(self, member: _Member, call: Callable[[], T]) -> T:
        """Calls an application, which is started if it does not run: a caller tries again."""
        try:
            outcome = call()
        except HostUnreachable as error:
            member.application.begin()
            name = member.name
            if failure := member.application.failure:
                # The job is not starting: it counts as not started, and holds no slots.
                message = f"The application {name} did not start and is tried again. {failure}"
                raise HostUnreachable(message, error.hint) from None
            if not member.application.starting:
                raise
            raise HostStarting(f"The application {name} is being started.", error.hint) from None
        if outcome is not None:
            self._answered(member)
        return outcome

    def _read(self, member: _Member, call: Callable[[Engine], T]) -> T | None:
        """The answer of an application; None without one. Whatever ails it stays its own."""
        try:
            answer = call(member.application.reads)
        except HostUnreachable as error:
            self._not_reached(member, error)
            return None
        except TrilithonError as error:
            _log.warning("application_failed", application=member.name, reason=error.message)
            return None
        self._answered(member)
        return answer

    def _answered(self, member: _Member) -> None:
        if member.state is not State.RUNNING:
            _log.info("application_answers", application=member.name)
            member.state, member.since_s = State.RUNNING, self._clock()
            self.on_return()

    def _not_reached(self, member: _Member, error: HostUnreachable) -> None:
        """One that has jobs is started again if it died. If somebody ended it, its jobs are gone:
        whoever wants them submits them again.
        """
        application = member.application
        if member.state is State.RUNNING:
            _log.warning("application_lost", application=member.name, reason=error.message)
            member.state, member.since_s = State.LOST, self._clock()
            # Its next life is reached by new connections.
            application.disconnect()
        if application.ended:
            member.jobs = {}
        elif member.jobs and not application.starting:
            application.begin()
        if not member.jobs and not application.starting and not member.starts.under_way:
            self._leave(member)

    def _end_if_idle(self, member: _Member) -> None:
        if member.state is not State.RUNNING or member.jobs or member.starts.under_way:
            member.idle_since_s = None
            return
        now_s = self._steady_clock()
        if member.idle_since_s is None:
            member.idle_since_s = now_s
        elif now_s - member.idle_since_s >= self._idle_s:
            _log.info("application_idle", application=member.name, idle_s=self._idle_s)
            self._end(member)

    def _end(self, member: _Member) -> None:
        try:
            member.application.end()
        except HostUnreachable as error:
            _log.info("application_gone", application=member.name, reason=error.message)
        self._leave(member)


def _start(application: Application, start: StartRequest) -> Outcome:
    with closing(application.connect()) as engine:
        return engine.submit(start.job, start.allocation, start.checkpoint)


def _lost(member: _Member) -> Condition:
    reason = f"The application {member.name} does not answer; it is started again if it died."
    return Condition(Health.DEGRADED, reason, Cause.HOST, member.since_s)
