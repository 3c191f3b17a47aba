"""Owns the rounds of a simulated run: looking at an engine, and letting the controller act on it."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol, Self

from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Engine, Outcome
from trilithon.control.commands import JobCommands
from trilithon.control.guard import Ruling
from trilithon.control.journal import FILE, Journal
from trilithon.control.loop import Controller
from trilithon.control.rules import Limits, Rules
from trilithon.model.allocation import Allocation
from trilithon.model.series import Series
from trilithon.policies.policy import Decision, Policy
from trilithon.policies.scene import Mode

KEPT_S = 600.0


class Timed(Engine, Protocol):
    """An engine whose time goes on when it is told to."""

    now_s: float


@dataclass(frozen=True)
class Acted:
    """A decision, what the guard had against it, and what came of each action that it granted."""

    time_s: float
    decision: Decision
    outcomes: tuple[Outcome, ...]
    clips: tuple[str, ...] = ()


class Rounds(Protocol):
    """Whoever looks at an engine in rounds, and may act on it."""

    @property
    def series(self) -> Series: ...

    def round(self) -> Sequence[Acted]: ...


@dataclass
class Looking:
    """Only looks: reports become snapshots, and nothing is done."""

    engine: Timed
    series: Series = field(default_factory=lambda: Series((), KEPT_S))
    _assembler: Assembler = field(default_factory=Assembler)
    _known: dict[str, Allocation] = field(default_factory=dict)

    def round(self) -> Sequence[Acted]:
        accepted = self.engine.jobs()
        for name in self._known.keys() - accepted.keys():
            self._assembler.forget(name)
            del self._known[name]
        for name, one in accepted.items():
            if self._known.get(name) is not one.allocation:
                self._known[name] = one.allocation
                self._assembler.expect(one.job, one.allocation)
        for report in self.engine.reports():
            self._assembler.take(report)
        self.series = self.series.extended([self._assembler.snapshot(self.engine.now_s)])
        return ()


class _EngineClock:
    """The time of a simulated engine, for the controller."""

    def __init__(self, engine: Timed) -> None:
        self._engine = engine

    def now_s(self) -> float:
        return self._engine.now_s


class Controlled:
    """The controller that also runs Spark, on an engine whose jobs it finds there."""

    def __init__(
        self,
        engine: Timed,
        policy: Policy,
        limits: Limits,
        seed: int,
        folder: Path | None,
        acts_from_s: float = 0.0,
    ) -> None:
        """Until `acts_from_s` it looks and may not act: its jobs are in mode off."""
        with ExitStack() as ending:
            kept = folder or Path(ending.enter_context(tempfile.TemporaryDirectory()))
            journal = Journal(kept / FILE)
            ending.callback(journal.close)
            mode = Mode.OFF if acts_from_s > engine.now_s else Mode.AUTO
            rules = Rules(limits=limits, policy=policy.name, seed=seed, mode=mode)
            self._engine, self._acts_from_s = engine, acts_from_s
            self._controller = Controller(engine, journal, policy, rules, _EngineClock(engine))
            self._ending = ending.pop_all()
        self._told: dict[str | None, tuple[str, tuple[str, ...]]] = {}

    @property
    def series(self) -> Series:
        return self._controller.observer.series

    def round(self) -> Sequence[Acted]:
        if self._controller.rules.mode is Mode.OFF and self._engine.now_s >= self._acts_from_s:
            # Those that come later begin so, too.
            commands = JobCommands(self._controller)
            for name, record in self._controller.books.jobs.items():
                if record.mode is Mode.OFF:
                    commands.mode(name, Mode.AUTO)
        done = self._controller.round()
        return list(self._acted(done.rulings, iter(done.outcomes)))

    def _acted(self, rulings: Iterable[Ruling], outcomes: Iterator[Outcome]) -> Iterator[Acted]:
        """What was done; and what was not, once for as long as it is the same."""
        for ruling in rulings:
            decision, clips = ruling.decision, tuple(str(clip) for clip in ruling.clips)
            came = tuple(islice(outcomes, len(ruling.granted)))
            same = self._told.get(decision.job) == (decision.reason, clips)
            self._told[decision.job] = (decision.reason, clips)
            if came or not same:
                yield Acted(self._engine.now_s, decision, came, clips)

    def close(self) -> None:
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
