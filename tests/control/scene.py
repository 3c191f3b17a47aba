"""What the controller's tests share: a controller over a fake cluster,
and a clock that goes with it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import FakeCluster
from trilithon.control.commands import JobCommands
from trilithon.control.journal import FILE, Journal
from trilithon.control.loop import Controller, Round, RoundRecorder
from trilithon.control.rules import Limits, Rules
from trilithon.policies.policy import Policy
from trilithon.policies.registry import policy


@dataclass
class ClusterClock:
    """The time of the cluster, and how far off the daemon's clock is."""

    cluster: FakeCluster
    off_s: float = 0.0
    # By how much the cluster's own clock was set: it is one machine's.
    set_by_s: float = 0.0

    def now_s(self) -> float:
        return self.cluster.now_s + self.off_s

    def steady_s(self) -> float:
        return self.cluster.now_s - self.set_by_s

    def set(self, by_s: float) -> None:
        self.cluster.now_s += by_s
        self.set_by_s += by_s


def rules(**limits: float) -> Rules:
    return Rules(limits=Limits.of(limits))


@dataclass
class World:
    """A cluster and a controller that can die and come back."""

    folder: Path
    cluster: FakeCluster = field(default_factory=FakeCluster)
    rules: Rules = field(default_factory=Rules)
    policy: Policy = field(default_factory=lambda: policy("threshold"))
    recorder: RoundRecorder | None = None

    def __post_init__(self) -> None:
        self.clock = ClusterClock(self.cluster)
        self.journal: Journal | None = None
        self.start()

    def start(self) -> None:
        """The daemon dies, without a word, and a new one begins."""
        if self.journal is not None:
            self.journal.close()
        self.journal = Journal(self.folder / FILE)
        self.controller = Controller(
            self.cluster,
            self.journal,
            self.policy,
            self.rules,
            self.clock,
            self.recorder,
            steady_s=self.clock.steady_s,
        )
        self.commands = JobCommands(self.controller)

    def round(self, seconds: float = 10.0) -> Round:
        self.cluster.advance(seconds)
        return self.controller.round()

    def rounds(self, count: int) -> list[Round]:
        return [self.round() for _ in range(count)]

    def parallelism(self, job: str) -> dict[str, int]:
        return dict(self.cluster.allocations[job].parallelism)

    def rows(self, sql: str, *values: Any) -> list[Any]:
        assert self.journal is not None
        return [tuple(row) for row in self.journal.database.all(sql, *values)]
