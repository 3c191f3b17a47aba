"""Names the machines and senders of one application so that they are unique over several.

Every Spark application numbers its executors from 0, and local mode has one machine, `driver`.
The name of the application comes second, after the host: `10.0.0.7/2` of `ads` is `10.0.0.7/ads/2`.
So numbers that each machine reports for its host, such as cores, are still counted once per host.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from trilithon.contract.engine import Accepted, Action, Reallocate, RestartJob
from trilithon.model.allocation import Allocation
from trilithon.model.layout import NodeKey
from trilithon.model.report import Report

# How many applications a cluster is divided among where nobody says how many there will be.
APPLICATIONS: Final = 4


@dataclass(frozen=True, slots=True)
class ApplicationNames:
    """Translates between the names in an application and those in the cluster."""

    application: str

    def machine(self, own: str) -> str:
        """The name in the cluster of a machine of the application."""
        host, slash, executor = own.partition("/")
        return f"{host}/{self.application}{slash}{executor}"

    def own_machine(self, name: str) -> str:
        """The name in the application. A machine of another one keeps its name, which no machine of
        this application has.
        """
        host, _, rest = name.partition("/")
        application, slash, executor = rest.partition("/")
        return f"{host}{slash}{executor}" if application == self.application else name

    def report(self, report: Report, placed: Mapping[NodeKey, tuple[int, ...]] | None) -> Report:
        """A report under the cluster's names. `placed` is that of all applications: whoever reads
        the report takes it for complete.
        """
        return replace(
            report,
            sender=self.sender(report.sender),
            lost=tuple(map(self.sender, report.lost)),
            machine_keys=tuple(map(self.machine, report.machine_keys)),
            placed=placed,
        )

    def sender(self, own: str) -> str:
        return f"{self.application}/{own}"

    def accepted(self, accepted: Accepted) -> Accepted:
        """A job of the application, placed on machines by the cluster's names."""
        allocation = _placed_by(accepted.allocation, self.machine)
        if allocation is accepted.allocation:
            return accepted
        return replace(accepted, allocation=allocation)

    def own_allocation(self, allocation: Allocation) -> Allocation:
        """An allocation by the application's names."""
        return _placed_by(allocation, self.own_machine)

    def own_action(self, action: Action) -> Action:
        """An action on a job by the application's names."""
        if isinstance(action, Reallocate):
            return Reallocate(self.own_allocation(action.allocation))
        if isinstance(action, RestartJob) and action.allocation is not None:
            return replace(action, allocation=self.own_allocation(action.allocation))
        return action


def _placed_by(allocation: Allocation, rename: Callable[[str], str]) -> Allocation:
    """An allocation with other names of machines. An instance may have none, and run anywhere."""
    if not allocation.placement:
        return allocation
    placement = {
        operator: tuple(None if name is None else rename(name) for name in machines)
        for operator, machines in allocation.placement.items()
    }
    return replace(allocation, placement=placement)
