"""What the tests of requests for machines share: controllers over a simulated cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.policies.stela.model import small_engine
from trilithon.control.cluster_commands import ClusterCommands
from trilithon.control.journal import FILE, Journal
from trilithon.control.loop import Controller, Round
from trilithon.control.rules import Limits, Rules
from trilithon.policies.policy import Policy
from trilithon.policies.registry import policy

RULES = Rules(limits=Limits(cool_down_s=10.0, fresh_s=10.0), policy="stela")
JOBS = ("papers/star", "papers/diamond")


class World:
    """A simulated cluster that goes on while controllers die and come back."""

    def __init__(self, folder: Path, deciding: Policy | None = None) -> None:
        self.folder, self.engine = folder, small_engine(folder, "star", "diamond")
        self.deciding = deciding or policy("stela", {"window_s": 20.0, "settle_s": 30.0})
        self.journal: Journal | None = None
        self.start()

    def start(self) -> None:
        if self.journal is not None:
            self.journal.close()
        self.journal = Journal(self.folder / FILE)
        self.controller = Controller(self.engine, self.journal, self.deciding, RULES, self)
        self.commands = ClusterCommands(self.controller)

    def now_s(self) -> float:
        return self.engine.now_s

    def rounds(self, count: int) -> list[Round]:
        done = []
        for _ in range(count):
            self.engine.advance(10.0)
            done.append(self.controller.round())
        return done

    @property
    def allocations(self) -> dict[str, tuple[Any, Any]]:
        accepted = self.engine.jobs()
        return {
            name: (dict(a.allocation.parallelism), dict(a.allocation.placement))
            for name, a in accepted.items()
        }

    @property
    def ended(self) -> list[bool | None]:
        assert self.journal is not None
        return [row.done for row in self.journal.requests(10)]


def measured_world(folder: Path) -> Iterator[World]:
    """A world with the measurements that a request needs; its journal is closed afterwards."""
    made = World(folder)
    made.rounds(8)
    yield made
    assert made.journal is not None
    made.journal.close()
