"""Runs the rounds of a simulated run: observing an engine, and letting the controller act on it."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self

from trilithon.contract.engine import Engine, Outcome
from trilithon.contract.observer import Observer
from trilithon.control.cluster_commands import ClusterCommands
from trilithon.control.commands import JobCommands
from trilithon.control.journal import FILE, Journal
from trilithon.control.loop import Controller, Round
from trilithon.control.recorder import RecordingFolder
from trilithon.control.rules import Limits, Rules
from trilithon.model.mode import Mode
from trilithon.model.series import Series
from trilithon.policies.decision import Decision
from trilithon.policies.policy import Policy
from trilithon.policies.requests import TimedRequest

KEPT_S = 600.0


class TimedEngine(Engine, Protocol):
    """An engine with a simulated time."""

    now_s: float


@dataclass(frozen=True)
class DecisionResult:
    """A decision, why not all of it was granted, and the outcome of each of its actions."""

    time_s: float
    decision: Decision
    outcomes: tuple[Outcome, ...]
    clips: tuple[str, ...] = ()


class Rounds(Protocol):
    """Observes an engine in rounds, and may act on it."""

    @property
    def series(self) -> Series: ...

    @property
    def next_s(self) -> float:
        """Seconds from the last round to the next."""

    def round(self) -> Sequence[DecisionResult]: ...


@dataclass
class ObservedRounds:
    """Rounds that only observe."""

    engine: TimedEngine
    next_s: float
    observer: Observer = field(default_factory=lambda: Observer(KEPT_S))

    @property
    def series(self) -> Series:
        return self.observer.series

    def round(self) -> Sequence[DecisionResult]:
        self.observer.observe(self.engine, self.engine.now_s)
        return ()


class _EngineClock:
    """The time of a simulated engine, for the controller."""

    def __init__(self, engine: TimedEngine) -> None:
        self._engine = engine

    def now_s(self) -> float:
        return self._engine.now_s


class ControlledRounds:
    """Rounds of the controller that also runs Spark; it takes over the jobs of the engine."""

    def __init__(
        self,
        engine: TimedEngine,
        policy: Policy,
        limits: Limits,
        seed: int,
        folder: Path | None,
        acts_from_s: float = 0.0,
        record: Path | None = None,
        requests: Sequence[TimedRequest] = (),
    ) -> None:
        """Until `acts_from_s` the jobs are in mode off: the controller only observes. Rounds are
        recorded into the folder `record`, for `replay`. The journal is written into `folder`, and
        kept in memory if there is none. `requests` are made at their times.
        """
        with ExitStack() as ending:
            journal = Journal(None if folder is None else folder / FILE)
            ending.callback(journal.close)
            mode = Mode.OFF if acts_from_s > engine.now_s else Mode.AUTO
            if folder is None:
                # Nobody reads the series of a journal in memory.
                limits = replace(limits, series_every_s=math.inf)
            rules = Rules(limits=limits, policy=policy.name, seed=seed, mode=mode)
            self._engine, self._acts_from_s = engine, acts_from_s
            recorder = None if record is None else ending.enter_context(RecordingFolder(record))
            self._controller = Controller(
                engine,
                journal,
                policy,
                rules,
                _EngineClock(engine),
                recorder,
                limits_policy=False,
            )
            self._ending = ending.pop_all()
        self._requests = sorted(requests, key=lambda request: request.at_s)
        self._shown: dict[tuple[str, str | None], tuple[str, tuple[str, ...]]] = {}

    @property
    def series(self) -> Series:
        return self._controller.freshness.observer.series

    @property
    def next_s(self) -> float:
        last = self._controller.last
        return self._controller.rules.limits.round_s if last is None else last.next_s

    def round(self) -> Sequence[DecisionResult]:
        state = self._controller.state
        if self._controller.rules.mode is Mode.OFF and self._engine.now_s >= self._acts_from_s:
            # In every round: jobs that start later begin in mode off, too.
            state.mode = Mode.AUTO
            commands = JobCommands(self._controller)
            for name, record in state.jobs.items():
                if record.mode is Mode.OFF:
                    commands.mode(name, Mode.AUTO)
        while self._requests and self._requests[0].at_s <= self._engine.now_s:
            request = self._requests.pop(0)
            ClusterCommands(self._controller).scale(request.kind, request.machines, request.job)
        return list(self._acted(self._controller.round()))

    def _acted(self, done: Round) -> Iterator[DecisionResult]:
        """What was done, and what was not: the latter once, as long as it stays the same."""
        for ruling in done.rulings:
            decision, clips = ruling.decision, tuple(str(clip) for clip in ruling.clips)
            outcomes = tuple(result.outcome for result in done.results_of(decision.id))
            # Layered policies may each have a decision about the same job.
            subject = (decision.issuer, decision.job)
            same = self._shown.get(subject) == (decision.reason, clips)
            self._shown[subject] = (decision.reason, clips)
            if outcomes or not same:
                yield DecisionResult(self._engine.now_s, decision, outcomes, clips)

    def close(self) -> None:
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
