"""Identifies what results of Dhalion's parts were made by: the set-up, the policy's code, and what
it decides.

For the experiments the text of a policy does not count, but its behaviour in short runs, to the
last bit (`experiments/provenance.py`). Here both do: runs that are short enough to be a check come
across few cures, and do not show a change of the others. Comments and docstrings do not count.
"""

from collections.abc import Iterable
from typing import Any, Final

from trilithon.experiments.dhalion import layered_run, sick_jobs, spark_health
from trilithon.experiments.dhalion.examined_policy import ExaminedPolicy
from trilithon.experiments.dhalion.simulated_health import simulate_case
from trilithon.experiments.provenance import code_of, digest, run_bits
from trilithon.experiments.sensitivity import numbers
from trilithon.model.change import Alert
from trilithon.plugins import policy
from trilithon.policies import dhalion, henge
from trilithon.policies.decision import Decision
from trilithon.scenarios.chosen import ChosenNumbers

# Two of each ailment, of those that were used while developing.
_SEEDS: Final = range(12)
# Policies only observe until the one, and act until the other: long enough for an evaluation.
_ACTS_FROM_S, _LENGTH_S = 300.0, 900.0


def diagnoses_made_by(chosen: ChosenNumbers) -> str:
    """Of the random jobs: how they are drawn and examined, and the examinations of some."""
    decided = []
    for seed in _SEEDS:
        sick = sick_jobs.draw(seed)
        acting = ExaminedPolicy(policy("dhalion"), sick.job.id)
        decided.append((sick_jobs.examine(sick, chosen, acting), _plain(acting.decisions)))
    return digest(code_of(sick_jobs), code_of(dhalion), repr(chosen.common.assumed), repr(decided))


def layered_made_by(chosen: ChosenNumbers) -> str:
    """Of the runs with Henge: their definition, the chosen numbers, and a short run under each."""
    runs = (
        layered_run.simulated(name, chosen, _LENGTH_S, _ACTS_FROM_S)
        for name in layered_run.POLICIES
    )
    bits = [run_bits(run).hex() for run in runs]
    of_paper = sorted(numbers(chosen, "dhalion").items())
    return digest(code_of(layered_run), code_of(dhalion), code_of(henge), repr(of_paper), *bits)


def spark_health_made_by(_: ChosenNumbers) -> str:
    """Of the runs on Spark: their set-up, and what is decided about the same jobs when simulated.
    The text of the module does not count: the runs take more than an hour.
    """
    decided = [_plain(simulate_case(case).decisions) for case in spark_health.CASES]
    return digest(spark_health.set_up_digest(), code_of(dhalion), repr(decided))


def _plain(decisions: Iterable[Decision]) -> list[Any]:
    return [
        (
            decision.id,
            decision.reason,
            [c.code if isinstance(c, Alert) else c for c in decision.changes],
            [(name, value and float(value)) for name, value in sorted(decision.numbers.items())],
            decision.causes,
        )
        for decision in decisions
    ]
