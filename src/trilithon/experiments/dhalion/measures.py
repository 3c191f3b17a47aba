"""Computes our numbers for the figures that Dhalion's paper prints."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from trilithon.experiments.dhalion.catalogue import JOB, LESS_S, MORE_S, SKEW_PERCENT, SLOW_PERCENT
from trilithon.experiments.paper import NothingDecided, Runs, Values
from trilithon.experiments.runs import END_S, Run, RunAction

DHALION: Final = "dhalion"
AS_PRINTED: Final = "Dhalion as printed"
_DIAGNOSIS: Final = "DIAGNOSIS_"
_NOT_CURED: Final = NothingDecided("Nothing was changed.")
_WORDS: Final = f"papers/{JOB}"


def _at_end(run: Run, operator: str) -> float:
    return float(run.final_instances[_WORDS][operator])


def _cures(run: Run, from_s: float = 0.0, to_s: float = np.inf) -> list[RunAction]:
    return [action for action in run.changes() if from_s < action.time_s <= to_s]


def _last_minutes(run: Run, from_s: float = 0.0) -> float | NothingDecided:
    cures = _cures(run, from_s)
    return cures[-1].time_s / 60 if cures else _NOT_CURED


def _rises(run: Run, operator: str) -> int:
    """How often an operator got more instances."""
    return int((np.diff(run.parallelism[_WORDS, operator]) > 0).sum())


def _millions_a_minute(run: Run) -> float:
    """What the spouts emit at the end of a run: they make as much as is taken from them."""
    end = run.times_s > run.times_s[-1] - END_S
    return float(np.nanmean(run.line(_WORDS, "input")[end])) * 60 / 1e6


def load_change(runs: Runs) -> Values:
    run = runs["spouts"][DHALION]
    before = run.times_s <= MORE_S
    spouts = _at_end(run, "spout")
    return {
        "splitters and counters after the load fell": float(
            run.line(_WORDS, "instances")[before][-1] - spouts
        ),
        "actions after the load fell": len(_cures(run, LESS_S, MORE_S)),
        "splitters at the end": _at_end(run, "split"),
        "counters at the end": _at_end(run, "count"),
        "actions after the load rose": len(_cures(run, MORE_S)),
        "the last action after": _last_minutes(run, MORE_S),
    }


def slo(runs: Runs) -> Values:
    run = runs["from-one"][DHALION]
    met = np.flatnonzero(run.shares[0] < 1)
    after_s = float(run.times_s[met[-1]]) if len(met) else 0.0
    ends_met = not len(met) or met[-1] + 1 < len(run.times_s)
    return {
        "the SLO is met after": after_s / 60 if ends_met else None,
        "spouts at the end": _at_end(run, "spout"),
        "splitters at the end": _at_end(run, "split"),
        "counters at the end": _at_end(run, "count"),
        "actions at the spouts": _rises(run, "spout"),
        "actions at the splitters": _rises(run, "split"),
        "actions at the counters": _rises(run, "count"),
        "sentences a minute at the end": _millions_a_minute(run),
    }


RIGHT: Final = {
    **{f"slow-{percent}": "SLOW_INSTANCE" for percent in SLOW_PERCENT},
    **{f"skew-{percent}": "DATA_SKEW" for percent in SKEW_PERCENT},
}


def first_diagnosis(run: Run) -> RunAction | None:
    return next((action for action in run.actions if action.reason.startswith(_DIAGNOSIS)), None)


def right_diagnoses(runs: Runs, strategy: str) -> int:
    """How many of the first diagnoses are right."""
    first = {name: first_diagnosis(by_name[strategy]) for name, by_name in runs.items()}
    return sum(
        action is not None and action.reason == _DIAGNOSIS + RIGHT[name]
        for name, action in first.items()
    )


def _without_ratios(first: RunAction | None) -> str:
    if first is None:
        return "Nothing was diagnosed with the settings as printed."
    kind = first.reason.removeprefix(_DIAGNOSIS).lower().replace("_", " ")
    return f"With the settings as printed the first diagnosis is {kind}, without back-pressure."


def diagnosis(runs: Runs) -> Values:
    values: Values = {"first diagnoses that are right": right_diagnoses(runs, DHALION)}
    # As in the paper, by back-pressure: by default queues that grow are diagnosed before.
    for name, by_name in runs.items():
        action = first_diagnosis(by_name[AS_PRINTED])
        numbers: Mapping[str, float | None] = {} if action is None else action.numbers
        nothing = NothingDecided(_without_ratios(action))
        for what, key in (("rates in B to the rest", "rate_ratio"), ("back-pressure",) * 2):
            value = numbers.get(key.replace("-", "_"))
            values[f"{what}, {name}"] = nothing if value is None else value
    return values


def mixed(runs: Runs) -> Values:
    values: Values = {}
    for percent in (25, 75):
        run = runs[f"slow-{percent}"][DHALION]
        suffix = f", {percent} % slower"
        values |= {
            f"the last action after{suffix}": _last_minutes(run),
            f"splitters at the end{suffix}": _at_end(run, "split"),
            f"counters at the end{suffix}": _at_end(run, "count"),
        }
    return values


# The cures that fit what ails the job, by experiment or variant. Any other is wrong.
FITTING: Final = {
    "slo": {"SOURCE_SCALE_UP", "SCALE_UP"},
    "mixed": {"SCALE_UP", "RELIEVE_INSTANCE"},
    **{f"slow-{percent}": {"RELIEVE_INSTANCE"} for percent in SLOW_PERCENT},
    **{f"skew-{percent}": {"MOVE_KEYS"} for percent in SKEW_PERCENT},
}
# A job is healthy while it has this share of its maximum utility.
HEALTHY: Final = 0.99


def wrong_cures(experiment: str, variant: str, run: Run) -> int:
    """How many actions do not fit what ails the job. Where the load changes, those that go against
    it are wrong: instances are to be removed after it fell, and added after it rose.
    """
    if experiment == "load-change":
        fitting = [
            *(action for action in _cures(run, LESS_S, MORE_S) if action.reason == "SCALE_DOWN"),
            *(action for action in _cures(run, MORE_S) if action.reason == "SCALE_UP"),
        ]
        return len(run.changes()) - len(fitting)
    allowed = FITTING[experiment if experiment in FITTING else variant]
    return sum(action.reason not in allowed for action in run.changes())


def healthy_after_minutes(run: Run) -> float | None:
    """When the job was unhealthy for the last time; None if it is so at the end."""
    unhealthy = np.flatnonzero(run.shares[0] < HEALTHY)
    if not len(unhealthy):
        return 0.0
    at_end = unhealthy[-1] + 1 == len(run.times_s)
    return None if at_end else float(run.times_s[unhealthy[-1]]) / 60


MEASURES: Final[Mapping[str, Callable[[Runs], Values]]] = {
    "load-change": load_change,
    "slo": slo,
    "diagnosis": diagnosis,
    "mixed": mixed,
}
