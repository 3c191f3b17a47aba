"""Owns the wanted state of a job: parallelism, weights, placement and batching, with a generation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trilithon.errors import InvalidAllocation, NotFound
from trilithon.model.intent import EdgeName
from trilithon.model.job import Job


@dataclass(frozen=True, slots=True)
class Allocation:
    """What an engine is asked to bring about. Applying one twice changes nothing.

    `weights` and `placement` have an entry per instance of an operator, where one is wanted;
    an operator that is not named there is left to the engine. `batching_ms` is the longest time a
    record may wait at the sender for others.
    """

    job: str
    generation: int
    parallelism: Mapping[str, int]
    weights: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    placement: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    batching_ms: Mapping[EdgeName, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for operator, count in self.parallelism.items():
            if count < 1:
                raise InvalidAllocation(f"{operator!r} cannot have {count} instances: at least 1.")
        for operator, weights in self.weights.items():
            self._one_per_instance(operator, len(weights), "weights")
            if not (min(weights, default=0.0) >= 0 and 0 < sum(weights) < math.inf):
                raise InvalidAllocation(
                    f"The weights of {operator!r} must be 0 or more, and one of them above 0."
                )
        for operator, machines in self.placement.items():
            self._one_per_instance(operator, len(machines), "machines")
        if not all(0 <= wait < math.inf for wait in self.batching_ms.values()):
            raise InvalidAllocation("A record cannot wait less than 0 ms at its sender.")

    def _one_per_instance(self, operator: str, count: int, what: str) -> None:
        wanted = self.parallelism.get(operator)
        if count != wanted:
            raise InvalidAllocation(f"{operator!r} has {wanted} instances but {count} {what}.")

    @property
    def instances(self) -> int:
        """The slots in use."""
        return sum(self.parallelism.values())

    def rescaled(self, parallelism: Mapping[str, int]) -> "Allocation":
        """The next generation, with other numbers of instances.

        Weights and placement of a changed operator are dropped: they were meant for the old number.
        """
        if unknown := set(parallelism) - set(self.parallelism):
            raise NotFound(
                f"{self.job} has no operator {', '.join(sorted(map(repr, unknown)))}.",
                f"It has: {', '.join(self.parallelism)}.",
            )
        changed = {name for name, count in parallelism.items() if count != self.parallelism[name]}
        return replace(
            self,
            generation=self.generation + 1,
            parallelism={**self.parallelism, **parallelism},
            weights={name: w for name, w in self.weights.items() if name not in changed},
            placement={name: m for name, m in self.placement.items() if name not in changed},
        )


def initial(job: Job) -> Allocation:
    """The allocation that a job asks for in its file."""
    wanted = {operator.name: operator.parallelism.initial for operator in job.operators}
    return Allocation(job.id, 1, wanted)
