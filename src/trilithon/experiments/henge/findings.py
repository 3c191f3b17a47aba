"""States what Henge's experiments show where the texts give no number: facts, and a sentence."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np
from scipy import stats

from trilithon.experiments.henge.measures import (
    BLACKLISTED,
    henge_run,
    only_variant,
    reconfigurations,
)
from trilithon.experiments.paper import Facts, Finding, Runs
from trilithon.experiments.strategies import MANUAL

EARLY_S: Final = 1500.0


def _number(facts: Facts, name: str) -> float:
    value = facts[name]
    assert isinstance(value, float | int)  # noqa: S101 - measured below
    return value


def _juice_and_queue(runs: Runs) -> Facts:
    """Figure 9 of the report: juice falls as the queue grows."""
    (variant,) = runs
    run = henge_run(runs, variant)
    job = next(iter(reconfigurations(run)), run.jobs[0])
    early = run.times_s <= EARLY_S
    values = (run.line(job, "juice")[early], run.line(job, "queue")[early])
    return {
        "job": job,
        "rank correlation": float(stats.spearmanr(*values, nan_policy="omit").statistic),
    }


def _juice_and_queue_sentence(facts: Facts) -> str:
    correlation = _number(facts, "rank correlation")
    moves = (
        "juice falls as the queue grows, as"
        if correlation < 0
        else "the two do not move against each other, unlike"
    )
    return (
        f"Up to {EARLY_S:,.0f} s, juice and queue length of {facts['job']} have a rank "
        f"correlation of {correlation:.2f}: {moves} in the report's figure 9."
    )


def _blacklisted(runs: Runs) -> Facts:
    """When strict promises are given up, and how many steps they take (report, 7.2.1)."""

    def doubled(ms: int) -> list[str]:
        return [name for name in runs if name.startswith(f"{ms}ms-") and name.endswith("-2x")]

    def first_s(ms: int) -> float | None:
        times_s = [
            action.time_s
            for name in doubled(ms)
            for action in henge_run(runs, name).actions
            if action.reason == BLACKLISTED
        ]
        return min(times_s, default=None)

    def steps(ms: int) -> int:
        return sum(reconfigurations(henge_run(runs, name)).total() for name in doubled(ms))

    return {
        "runs": len(runs),
        "runs without a change": sum(not henge_run(runs, name).changes() for name in runs),
        "40 ms blacklisted at": first_s(40),
        "50 ms blacklisted at": first_s(50),
        "40 ms Reconfigurations": steps(40),
        "50 ms Reconfigurations": steps(50),
    }


def _blacklisted_sentence(facts: Facts) -> str:
    strict, lax = (
        np.inf if (at_s := facts[f"{ms} ms blacklisted at"]) is None else float(at_s)
        for ms in (40, 50)
    )
    when = "earlier than" if strict < lax else "as early as" if strict == lax else "later than"
    if np.isinf(min(strict, lax)):
        blacklisted = "neither a promise of 40 ms nor one of 50 ms is ever blacklisted"
    else:
        blacklisted = f"the promise of 40 ms is blacklisted {when} that of 50 ms"
    return (
        f"In {facts['runs without a change']} of {facts['runs']} runs the intent is met from the "
        f"beginning. With twice the load {blacklisted}; in five runs each, 40 ms takes "
        f"{facts['40 ms Reconfigurations']} Reconfigurations and 50 ms "
        f"{facts['50 ms Reconfigurations']} (in the report, 40 ms is blacklisted earlier and takes "
        "fewer)."
    )


def _steps(runs: Runs) -> Facts:
    """In the paper the production cluster ends by a Reversion."""
    (variant,) = runs
    run = henge_run(runs, variant)
    kinds = Counter(action.reason for action in run.changes())
    return {
        **{f"steps {kind}": count for kind, count in sorted(kinds.items())},
        "last step": run.changes()[-1].reason if run.changes() else None,
        "manual, at the end": only_variant(runs)[MANUAL.name].at_end,
    }


def _steps_sentence(facts: Facts) -> str:
    steps = ", ".join(
        f"{count} × {name.removeprefix('steps ')}"
        for name, count in facts.items()
        if name.startswith("steps ")
    )
    manual = 100 * _number(facts, "manual, at the end")
    return (
        f"Henge's steps: {steps or 'none'}. The last is {facts['last step'] or 'none'}; in the "
        "paper, a Reversion. The paper's cluster cannot meet all intents; at the loads chosen "
        f"here the manual allocation reaches {manual:.1f} % at the end."
    )


def _alone(runs: Runs) -> Facts:
    """What a job needs in a cluster of its own."""
    return {
        f"alone on {cores} cores, at the end": henge_run(runs, f"alone on {cores}").at_end
        for cores in (1, 2)
    }


def _alone_sentence(facts: Facts) -> str:
    one, two = (100 * _number(facts, f"alone on {n} cores, at the end") for n in (1, 2))
    return (
        f"In a cluster of its own a job reaches {one:.1f} % of its utility on one core, and "
        f"{two:.1f} % on two: `own_cores` was chosen by that."
    )


FINDINGS: Final[Mapping[str, Finding]] = {
    "juice": Finding(_juice_and_queue, _juice_and_queue_sentence),
    "initial-configuration": Finding(_blacklisted, _blacklisted_sentence),
    "production": Finding(_steps, _steps_sentence),
    "cost": Finding(_alone, _alone_sentence),
}
