"""A daemon that can be killed: the real loop and the real journal, in a process of its own, over
the socket of a host that goes on.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.cluster import chain
from tests.fakes import FakePolicy
from trilithon.control import failpoints
from trilithon.control.commands import JobCommands
from trilithon.control.journal import FILE, Journal
from trilithon.control.loop import Controller
from trilithon.control.rules import Limits, Rules
from trilithon.engines.remote import RemoteEngine
from trilithon.model.allocation import initial
from trilithon.model.change import InstanceRestart
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.policies.decision import Decision
from trilithon.policies.policy import State, Verdict, decision_id
from trilithon.policies.registry import policy
from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.policies.scene import Scene

LIMITS = Limits(
    cool_down_s=10.0, down_delay_s=20.0, fresh_s=10.0, watch_s=30.0, series_every_s=20.0
)
# Everything that an owner is told was accepted, one line each, on the
# disk before the next is asked.
ACCEPTED = "accepted.txt"


@dataclass
class Ticking:
    """A clock that goes on by ten seconds with every round, as that of the host does."""

    at_s: float

    def now_s(self) -> float:
        return self.at_s


class Busy(FakePolicy):
    """The threshold policy, and a restart of an instance now and then: wanted state and
    one-shot actions side by side.
    """

    name = "busy"

    def __init__(self) -> None:
        self._inner = policy("threshold", {"window_s": 10.0})

    def decide(self, scene: Scene, state: State) -> Verdict:
        verdict = self._inner.decide(scene, state)
        quiet = [
            standing
            for name, standing in scene.statuses.items()
            if standing.open and name not in {decision.job for decision in verdict.decisions}
        ]
        if not quiet or scene.round % 3:
            return verdict
        id_ = decision_id(scene, quiet[0].job)
        restart = InstanceRestart(quiet[0].job, "o0", 0)
        return Verdict(
            (*verdict.decisions, Decision(id_, quiet[0].job, (restart,), "NOW_AND_THEN", "Again.")),
            verdict.state,
        )


def job(name: str, p95_ms: float = 80.0, where: str | None = None) -> Job:
    plain = chain(name, "ads" if name < "c" else "search", p95_ms=p95_ms, most=4)
    if where is None:
        return plain
    changed = replace(plain.operators[0], work=replace(plain.operators[0].work, where=where))
    return replace(plain, operators=(changed, *plain.operators[1:]))


class Run:
    """One life of a daemon."""

    def __init__(self, folder: Path, socket: Path, start_s: float) -> None:
        self.folder = folder
        self.clock = Ticking(start_s)
        self.engine = RemoteEngine(socket)
        self.journal = Journal(folder / FILE)
        rules = Rules(limits=LIMITS, quotas={"ads": 9})
        self.controller = Controller(self.engine, self.journal, Busy(), rules, self.clock)
        self.commands = JobCommands(self.controller)

    def tick(self, rounds: int) -> None:
        for _ in range(rounds):
            self.clock.at_s += 10.0
            self.controller.round()

    def say(self, line: str) -> None:
        """The owner was told: from now on it must not be lost."""
        with (self.folder / ACCEPTED).open("a") as stream:
            stream.write(line + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def ask(self, seed: int) -> None:
        """What owners do, in an order that the seed gives."""
        order = [("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")][seed % 3]
        # Somebody else starts a job: it is to be taken over.
        self.engine.submit(job("d"), initial(job("d")))
        for name in order:
            self.commands.apply(job(name))
            self.say(f"apply {name}")
            self.tick(1 + seed % 2)
        # Nobody here carries it out: it must be there for whoever does.
        self.journal.request(
            ScalingRequest("scale-out-1", ScalingKind.OUT, 1, None, self.clock.at_s)
        )
        self.say("request scale-out-1")
        self.tick(6)
        self.commands.apply(job(order[0], where="v >= 1"))
        self.say(f"version {order[0]}")
        self.commands.mode(job(order[1]).id, Mode.ADVISE)
        self.say(f"advise {order[1]}")
        self.tick(5)
        self.commands.pause(job(order[1]).id)
        self.say(f"pause {order[1]}")
        self.tick(2)
        self.commands.delete(job(order[2]).id)
        self.say(f"delete {order[2]}")
        self.tick(12)


def live(folder: str, socket: str, start_s: float, seed: int, point: str, nth: int) -> None:
    """A life that ends at a failpoint, if it comes to it."""
    failpoints.arm(point, nth)
    run = Run(Path(folder), Path(socket), start_s)
    run.ask(seed)


def recover(folder: str, socket: str, start_s: float, answer: Any) -> None:
    """A life after a death: a few rounds, and what is known then."""
    run = Run(Path(folder), Path(socket), start_s)
    run.tick(8)
    jobs = {
        name: (held.desired.value, held.mode.value, held.wanted == held.accepted)
        for name, held in run.controller.state.jobs.items()
    }
    answer.put(jobs)
