"""Checks the assumptions under which the model holds (latency guarantees, section IV-A).

(a) Machines are alike: no instance takes much longer per record than its peers.
(b) Load is balanced: no instance gets many more records than its peers.
(c) Operators are elastic: their parallelism can change.

An instance is compared with the mean of its peers. Few records say nothing. (a) and (b) are
computed for all operators at once; (c) is in the status of a job.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from trilithon.measures.group import max_by_node, ratio, sum_by_node
from trilithon.model.columns import Bools, Floats
from trilithon.model.series import Window

# Chosen: instances are compared from so many records each on.
FEWEST_RECORDS: Final = 30


@dataclass(frozen=True, slots=True)
class UnevenInstance:
    """An instance that stands out: its value over the mean of its peers'."""

    index: int
    machine: str | None
    factor: float


@dataclass(frozen=True, eq=False)
class Evenness:
    """How far the largest instance of each node stands out, for one measured quantity."""

    window: Window
    values: Floats
    factor: Floats

    @classmethod
    def of_service_times(cls, window: Window) -> "Evenness":
        taken = window.instances.taken
        return cls._of(window, ratio(window.instances.busy_s, taken), taken >= FEWEST_RECORDS)

    @classmethod
    def of_load(cls, window: Window) -> "Evenness":
        """What was taken would show nothing: an instance that cannot keep up takes no more than
        the others.
        """
        sent, layout = window.instances.sent, window.layout
        enough = sum_by_node(layout, sent) >= FEWEST_RECORDS * layout.parallelism
        return cls._of(window, sent, enough[layout.instance_node])

    @classmethod
    def _of(cls, window: Window, values: Floats, enough: Bools) -> "Evenness":
        """Missing where a value is missing, or where an instance has too few records."""
        layout = window.layout
        known = np.where(enough, values, np.nan)
        largest, total = max_by_node(layout, known), sum_by_node(layout, known)
        others = layout.parallelism.astype(float) - 1
        return cls(window, values, ratio(largest, ratio(total - largest, others)))

    def uneven(self, job: str, operator: str, bound: float) -> UnevenInstance | None:
        """The largest instance of an operator, if it exceeds its peers by more than the bound."""
        layout = self.window.layout
        node = layout.node_row[job, operator]
        if not self.factor[node] > bound:
            return None
        first = int(layout.first_instance[node])
        row = first + int(np.argmax(self.values[first : first + int(layout.parallelism[node])]))
        machine = self.window.instances.machine[row]
        return UnevenInstance(
            index=int(layout.instance_index[row]),
            machine=None if np.isnan(machine) else layout.machines[int(machine)],
            factor=float(self.factor[node]),
        )
