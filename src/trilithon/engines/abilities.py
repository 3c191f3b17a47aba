"""Owns what an engine of Spark's real-time mode can do, the real one and the simulated one alike."""

from typing import Final

from trilithon.contract.engine import Ability, How

REAL_TIME: Final = {
    Ability.PARALLELISM: How.LIVE,
    Ability.WEIGHTS: How.LIVE,
    Ability.PLACEMENT: How.LIVE,
    Ability.BATCHING: How.NOT_AT_ALL,
    Ability.RESTART_INSTANCE: How.NOT_AT_ALL,
    Ability.RESTART_JOB: How.WITH_OUTAGE,
    Ability.ADD_MACHINES: How.NOT_AT_ALL,
    Ability.REMOVE_MACHINES: How.NOT_AT_ALL,
}
