"""Measures the figures of Stela's experiments: throughput, convergence time, down time.

Convergence time (section IV-D) is the time from the request until throughput has been twice above
and twice below its average after the action, within 5 % of it. Simulated throughput may be flat,
where a real one wobbles: what is within 0.5 % of the average counts as above and as below. Down
time (IV-E) is the time without throughput. Both are counted in windows of 10 s, as in the paper's
plots.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from trilithon.experiments.paper import Facts, Finding, NothingDecided, Runs, Values
from trilithon.experiments.runs import Floats, Run
from trilithon.experiments.stela.catalogue import (
    AGAINST_DEFAULT,
    CONVERGENCE,
    DEFAULT,
    DEFAULT_GAIN,
    DOWN_GROUP_1,
    DOWN_GROUP_2,
    EXPERIMENTS,
    GAIN,
    GROUP_1,
    GROUP_2,
    LEAST_LINK,
    LEFT,
    LEFT_BY_GROUP_1,
    LEFT_BY_GROUP_2,
    LINK_GAIN,
    SCALE_IN,
    SCALED_S,
    STELA,
    TIMES_GROUP_1,
    TIMES_GROUP_2,
)

# How long throughput is averaged for, before the request and at the end of a run.
BEFORE_S: Final = 120.0
AFTER_S: Final = 300.0
WITHIN: Final = 0.05
# Chosen: nearer to the average than this, throughput is neither above nor below it, but at it.
AT: Final = 0.005


def before(run: Run) -> float:
    chosen = (run.times_s > SCALED_S - BEFORE_S) & (run.times_s <= SCALED_S)
    return float(np.nanmean(run.throughput[chosen]))


def after(run: Run) -> float:
    return float(np.nanmean(run.throughput[run.times_s > run.times_s[-1] - AFTER_S]))


def convergence_s(run: Run) -> float | None:
    """None if throughput does not settle before the run ends."""
    late = run.times_s > SCALED_S
    return converged_after(run.times_s[late] - SCALED_S, run.throughput[late], after(run))


def converged_after(times_s: Floats, throughput: Floats, average: float) -> float | None:
    """The first time at which throughput has been twice above and twice below its average since it
    last left the 5 % around it.
    """
    above = below = 0
    for at_s, value in zip(times_s, throughput, strict=True):
        if np.isnan(value) or abs(value - average) > WITHIN * average:
            above = below = 0
            continue
        above += value >= average * (1 - AT)
        below += value <= average * (1 + AT)
        if above >= 2 and below >= 2:
            return float(at_s)
    return None


def down_s(run: Run) -> float:
    """Seconds without throughput after the request."""
    spans_s = np.diff(run.times_s, prepend=0.0)
    down = (run.times_s > SCALED_S) & (np.nan_to_num(run.throughput) <= 0)
    return float(spans_s[down].sum())


def _above(one: float, other: float) -> float | NothingDecided:
    """To a thousandth of a percent: what a run that has settled still moves is no gain."""
    if other <= 0:
        return NothingDecided("Nothing arrives at the sinks.")
    return round(one / other - 1, 5) + 0.0


def _share(one: float | None, other: float | None) -> float | NothingDecided | None:
    if one is None:
        return None
    if other is None or other == 0:
        return NothingDecided("What it is compared with has no such time in these runs.")
    return one / other


def _scale_out(variant: str) -> Callable[[Runs], Values]:
    def measure(runs: Runs) -> Values:
        by = runs[variant]
        stela, default, link = by[STELA], by[DEFAULT], by[LEAST_LINK]
        return {
            AGAINST_DEFAULT: _above(after(stela), after(default)),
            GAIN: _above(after(stela), before(stela)),
            DEFAULT_GAIN: _above(after(default), before(default)),
            LINK_GAIN: _above(after(link), before(link)),
            CONVERGENCE: _share(convergence_s(stela), convergence_s(default)),
        }

    return measure


def _scale_in(runs: Runs) -> Values:
    by = runs["pageload"]
    return {
        LEFT: after(by[STELA]) / before(by[STELA]),
        LEFT_BY_GROUP_1: after(by[GROUP_1]) / before(by[GROUP_1]),
        LEFT_BY_GROUP_2: after(by[GROUP_2]) / before(by[GROUP_2]),
        TIMES_GROUP_1: _share(after(by[STELA]), after(by[GROUP_1])),
        TIMES_GROUP_2: _share(after(by[STELA]), after(by[GROUP_2])),
        DOWN_GROUP_1: _share(down_s(by[STELA]), down_s(by[GROUP_1])),
        DOWN_GROUP_2: _share(down_s(by[STELA]), down_s(by[GROUP_2])),
    }


MEASURES: Final[Mapping[str, Callable[[Runs], Values]]] = {
    **{e.name: _scale_out(e.name) for e in EXPERIMENTS if e is not SCALE_IN},
    SCALE_IN.name: _scale_in,
}


def _facts(runs: Runs) -> Facts:
    """Of the first seed: what the table on the page is made of."""
    (by,) = runs.values()
    facts: dict[str, float | str | None] = {}
    for name, run in by.items():
        facts[f"{name}, before"] = before(run)
        facts[f"{name}, after"] = after(run)
        facts[f"{name}, convergence"] = convergence_s(run)
        facts[f"{name}, down"] = down_s(run)
        facts[f"{name}, instances"] = float(run.instances_at_end)
    return facts


def _number(facts: Facts, name: str) -> float | None:
    value = facts.get(name)
    return float(value) if isinstance(value, float | int) else None


def _sentence(facts: Facts) -> str:
    names = [name.removesuffix(", after") for name in facts if name.endswith(", after")]
    ranked = sorted(names, key=lambda name: -(_number(facts, f"{name}, after") or 0.0))
    ends = ", ".join(f"{name} {_number(facts, f'{name}, after') or 0.0:,.0f}" for name in ranked)
    first = _number(facts, f"{STELA}, before") or 0.0
    converged = _range([_number(facts, f"{name}, convergence") for name in ranked])
    down = _range([_number(facts, f"{name}, down") for name in ranked])
    return (
        f"Records per second at the sinks, {first:,.0f} before: {ends}. Throughput converges "
        f"within {converged}, and is zero for {down}."
    )


def _range(seconds: Sequence[float | None]) -> str:
    """The least and the most of all strategies."""
    known = sorted(value for value in seconds if value is not None)
    never = len(seconds) - len(known)
    if not known:
        return "no time of the run"
    ends = f"{known[0]:.0f} s"
    ends += f" to {known[-1]:.0f} s" if known[-1] > known[0] else ""
    return f"{ends} ({never} strategies: never)" if never else ends


FINDINGS: Final = {experiment.name: Finding(_facts, _sentence) for experiment in EXPERIMENTS}
