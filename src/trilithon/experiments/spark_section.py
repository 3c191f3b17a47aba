"""Writes the section of a paper's page about its runs on Spark, from their numbers alone."""

from collections.abc import Sequence
from typing import Final

from trilithon.experiments.markdown import listed, percent, table
from trilithon.experiments.paper import Paper
from trilithon.experiments.spark_results import (
    NONE,
    SparkRunResult,
    by_policy,
    gains_over,
    of_earlier_set_up,
)

# An hour of the traces in which more than chance was missed.
LOW: Final = 0.95
_EARLIER_SET_UP: Final = (
    "**From an earlier set-up**, in which slots were hardly scarce; to be run again.\n"
)


def spark_section(runs: Sequence[SparkRunResult], paper: Paper, name: str) -> str:
    """The section; `name` is the name of the page's file without the suffix."""
    rows = [
        (
            paper.label(run.policy),
            percent(run.satisfaction),
            f"{percent(run.least)} to {percent(run.most)}" if run.runs > 1 else "one run",
            percent(run.worst_tenth),
            f"{run.actions:.0f}",
            str(sum(share < LOW for share in run.by_hour)),
        )
        for run in by_policy(runs)
    ]
    low = f"hours below {100 * LOW:.0f} %"
    heads = ("", "satisfaction", "of the runs", "worst tenth", "actions", low)
    return "\n".join(
        [
            "## On Spark\n",
            (
                "Two traces on Spark's real-time mode, with the jobs of `make demo` "
                f"([how, and each job](./{name}-details.md#on-spark); `{paper.command} "
                "spark-diurnal`, two hours on an otherwise idle machine, not part of `all`). Means "
                "over the runs of each policy, which were made in turn.\n"
            ),
            *([_EARLIER_SET_UP] if of_earlier_set_up(runs) else []),
            table(heads, rows),
            f"{spark_sentences(runs, paper)}\n",
        ]
    )


def spark_sentences(runs: Sequence[SparkRunResult], paper: Paper) -> str:
    """What the runs show, from their numbers alone."""
    policies = by_policy(runs)
    shares = [run.satisfaction for run in policies]
    each = listed(
        [
            f"{percent(run.satisfaction)} under {paper.label(run.policy)} "
            f"({run.actions:.0f} actions)"
            for run in policies
        ]
    )
    apart = 100 * (max(shares) - min(shares))
    sentences = [f"Satisfaction is {each}: at most {apart:.1f} points apart."]
    spread = 100 * max(run.spread for run in policies)
    if min(run.runs for run in policies) == 1:
        sentences.append(
            "A policy was run once, so how far two runs under the same policy differ is not known."
        )
    elif apart > spread:
        sentences.append(
            f"Runs under the same policy differ by {spread:.1f} points at most, which is less."
        )
    else:
        sentences.append(
            f"Runs under the same policy differ by up to {spread:.1f} points: the policies cannot "
            "be told apart."
        )
    sentences += [
        _worth_of_control(gains, paper.label(policy))
        for policy in (run.policy for run in policies if run.policy != NONE)
        if len(gains := gains_over(runs, policy, NONE)) > 1
    ]
    known = [run for run in policies if run.by_hour]
    hours = range(min((len(run.by_hour) for run in known), default=0))
    low = [hour for hour in hours if all(run.by_hour[hour] < LOW for run in known)]
    if low:
        lost = sum(1 - share for run in known for share in run.by_hour)
        there = sum(1 - run.by_hour[hour] for run in known for hour in low)
        sentences.append(
            f"{percent(there / lost)} of what all runs lose together is lost in the hours that are "
            f"below {100 * LOW:.0f} % under every policy ({listed([str(hour) for hour in low])}, "
            "counted from 0)."
        )
    return " ".join(sentences)


def _worth_of_control(gains: Sequence[float], label: str) -> str:
    """What a policy gains over no control, turn by turn."""
    ahead = sum(gain > 0 for gain in gains)
    by = f"{100 * min(gains):+.1f} to {100 * max(gains):+.1f} points"
    worth = {len(gains): "it earns its keep", 0: "it does not earn its keep"}
    return (
        f"Against no control in the same turn, {label} is ahead in {ahead} of {len(gains)} turns "
        f"({by}): {worth.get(ahead, 'that does not decide whether it earns its keep')}."
    )
