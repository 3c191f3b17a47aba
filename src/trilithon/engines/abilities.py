"""Owns what engines can do: Spark's real-time mode, the real one and the simulated one alike."""

from collections.abc import Iterable
from typing import Final

from trilithon.contract.engine import Ability, How
from trilithon.model.job import Job

REAL_TIME: Final = {
    Ability.PARALLELISM: How.LIVE,
    Ability.WEIGHTS: How.LIVE,
    Ability.PLACEMENT: How.LIVE,
    Ability.KEY_GROUPS: How.LIVE,
    Ability.AVOIDED_TASKS: How.LIVE,
    Ability.BATCHING: How.AT_BOUNDARY,
    Ability.RESTART_INSTANCE: How.NOT_AT_ALL,
    Ability.RESTART_JOB: How.WITH_OUTAGE,
    Ability.ADD_MACHINES: How.NOT_AT_ALL,
    Ability.REMOVE_MACHINES: How.NOT_AT_ALL,
}


def fixed_operators(jobs: Iterable[Job], *, state_moves: bool) -> dict[str, tuple[str, ...]]:
    """By job, the operators whose parallelism must stay: by their owner's wish, and those that keep
    state where the engine cannot divide it anew.
    """
    found = {
        job.id: tuple(
            operator.name
            for operator in job.operators
            if operator.name in job.bounds.fixed or (operator.work.stateful and not state_moves)
        )
        for job in jobs
    }
    return {name: fixed for name, fixed in found.items() if fixed}
