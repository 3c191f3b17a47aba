"""Keeps the machines of a simulated cluster: their names and rows, and which are up."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from trilithon.engines.simulated import world_tables
from trilithon.engines.simulated.faults import AnyFault
from trilithon.engines.simulated.world_tables import Rows
from trilithon.errors import NotFound


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """A machine in numbers."""

    name: str
    cores: float
    memory_bytes: float


class MachineRegistry:
    """Machines by row. A machine that was removed or crashed keeps its row."""

    def __init__(self, machines: Iterable[MachineSpec]) -> None:
        self.all: list[MachineSpec] = []
        self.up: list[bool] = []
        self.reporting: list[bool] = []
        # How often each came up: a sender that was lost does not come back under its name.
        self.lives: list[int] = []
        self.gone: set[int] = set()
        # What ails each machine now.
        self.faults: list[list[AnyFault]] = []
        for machine in machines:
            self.add(machine)
        self.count_at_start = len(self.all)

    def add(self, machine: MachineSpec) -> Rows:
        """The row of a new machine."""
        self.all.append(machine)
        self.up.append(True)
        self.reporting.append(True)
        self.lives.append(1)
        self.faults.append([])
        return world_tables.rows(world_tables.MACHINE, 1, cores=machine.cores)

    def rows(self) -> Rows:
        return world_tables.rows(
            world_tables.MACHINE, len(self.all), cores=[m.cores for m in self.all]
        )

    def find(self, name: str) -> int | None:
        """The row of a machine; None if it was removed or never there."""
        for row, machine in enumerate(self.all):
            if machine.name == name and row not in self.gone:
                return row
        return None

    def row(self, name: str) -> int:
        if (row := self.find(name)) is None:
            names = ", ".join(self.names())
            raise NotFound(f"There is no machine {name!r}.", f"There are: {names}.")
        return row

    def sender(self, row: int) -> str:
        """The name under which a machine reports."""
        name, life = self.all[row].name, self.lives[row]
        return name if life == 1 else f"{name}/{life}"

    def names(self) -> list[str]:
        return [m.name for row, m in enumerate(self.all) if row not in self.gone]

    def usable(self) -> list[int]:
        return [row for row, up in enumerate(self.up) if up and row not in self.gone]

    def next_names(self, count: int) -> list[str]:
        """Names that no machine ever had: the last machine's, with higher numbers."""
        stem = self.all[-1].name.rstrip("0123456789") if self.all else "m"
        known = {machine.name for machine in self.all}
        names: list[str] = []
        number = len(self.all)
        while len(names) < count:
            if (name := f"{stem}{number}") not in known:
                names.append(name)
            number += 1
        return names

    def least_used(self, used: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> int:
        """The machine with the fewest instances, the first of several."""
        usable = self.usable()
        if not usable:
            raise NotFound("No machine is up.", "")
        return min(usable, key=lambda row: (int(used[row]), row))
