"""Explains why a figure of Henge is worse than the paper's, differs from it, or is missing.

One sentence each; the numbers in it come from the results.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from trilithon.experiments.henge.measures import HENGE, SPIKE_S
from trilithon.experiments.markdown import listed, number
from trilithon.experiments.strategies import BEST_STATIC
from trilithon.experiments.suite import ExperimentResult

Reason = Callable[[ExperimentResult], str]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _at_end(result: ExperimentResult, variant: str, strategy: str) -> str:
    return _percent(result.summaries[variant][strategy].at_end)


def _never_fell(_: ExperimentResult) -> str:
    return (
        "Juice does not fall when the load trebles: before that, equation 4 has given each job "
        "so many instances that they carry the higher load as well."
    )


def _manual(result: ExperimentResult) -> str:
    average = result.ours("average satisfaction, manual")
    reached = "" if average is None else f" and reaches {_percent(average)} on average"
    return (
        "The manual allocation here is the smallest that meets all intents at median load"
        f"{reached}, since queues that fill by day keep latency high at night; the paper's expert "
        "must have left more room."
    )


def _uncontrolled(_: ExperimentResult) -> str:
    return (
        "Uncontrolled jobs meet their intents in the quietest hours here, in which a single "
        "instance keeps up at the chosen service times."
    )


def _cost(result: ExperimentResult) -> str:
    return (
        "At the chosen rate no division of 40 % of the cores carries all five jobs: Henge reaches "
        f"{_at_end(result, '40%', HENGE)}, and the best static allocation that the search finds "
        f"{_at_end(result, '40%', BEST_STATIC.name)}."
    )


def _one_after_the_other(result: ExperimentResult) -> str:
    actions = result.summaries["eight"][HENGE].actions
    return (
        f"Henge changes one job at a time and watches each for a minute ({actions} changes in this "
        "run); the paper's figure has all jobs converged 100 s after the first change."
    )


def _nobody_to_take_from(result: ExperimentResult) -> str:
    series = result.series["eight"][HENGE]
    steps = Counter(why.lower() for at_s, why in series.actions if at_s > SPIKE_S)
    instead = listed([f"{count} {why}" for why, count in sorted(steps.items())] or ["nothing"])
    return (
        "A Reduction takes only from jobs that meet their intents (condition b), and the chosen "
        f"CPU load makes all eight jobs miss theirs at once: Henge's steps after it are {instead}."
    )


def _waits_for_its_turn(result: ExperimentResult) -> str:
    rounds, late, early = (
        number(result.ours(name), unit)
        for name, unit in (
            ("rounds, stateful", "rounds"),
            ("convergence, stateful", "s"),
            ("convergence, stateless", "s"),
        )
    )
    return (
        f"Jobs need fewer rounds here ({rounds} with state), so most of the time is waiting for a "
        "turn, and the stateless jobs, whose promise is stricter, come first: they converge "
        f"after {early}, those with state after {late}."
    )


def _full(result: ExperimentResult) -> str:
    return (
        "The rate was chosen so that 85 jobs just fill the ten machines: Henge gives instances "
        "to each job in turn, the machines become congested, and it ends at "
        f"{_at_end(result, 'to-85', HENGE)} of the utility where the best static allocation has "
        f"{_at_end(result, 'to-85', BEST_STATIC.name)}."
    )


def _low_priority(result: ExperimentResult) -> str:
    return (
        "Half of the jobs ask for juice with a seventh of PageLoad's priority and have their "
        "turn last, when 20 machines of 8 cores are nearly full at the chosen rates: Henge ends "
        f"at {_at_end(result, '20x8', HENGE)} of all utility, the best static allocation at "
        f"{_at_end(result, '20x8', BEST_STATIC.name)}."
    )


REASONS: Final[dict[tuple[str, str], Reason]] = {
    ("juice", "juice when it has fallen"): _never_fell,
    ("juice", "juice has fallen"): _never_fell,
    ("diurnal", "average satisfaction, manual"): _manual,
    ("diurnal", "15th percentile, manual"): _manual,
    ("diurnal", "median, manual"): _manual,
    ("diurnal", "average satisfaction, uncontrolled"): _uncontrolled,
    ("diurnal", "median, uncontrolled"): _uncontrolled,
    ("diurnal", "90th percentile, uncontrolled"): _uncontrolled,
    ("cost", "satisfaction at 40 %"): _cost,
    ("cpu-spike", "first converged by"): _one_after_the_other,
    ("cpu-spike", "jobs reduced"): _nobody_to_take_from,
    ("stateful", "longer with state"): _waits_for_its_turn,
    ("more-jobs", "average utility after the arrivals at 8 h"): _full,
    ("more-machines", "5th percentile of satisfaction, 20 machines"): _low_priority,
}
