"""Writes the page of a paper's results: ours beside the paper's, why where worse, and the plots."""

from collections.abc import Iterator, Sequence
from typing import Final

from trilithon.experiments.details_page import moves_summary
from trilithon.experiments.markdown import (
    capitalised,
    listed,
    number,
    percent,
    reason,
    table,
    verdict,
)
from trilithon.experiments.mixes import FIRST_SEED, SAME, TRIED, Ranking
from trilithon.experiments.paper import Paper
from trilithon.experiments.plots import Plot, available_plots
from trilithon.experiments.results import PaperResults
from trilithon.experiments.runner import MOST_TRIED
from trilithon.experiments.spark_results import SparkRunResult
from trilithon.experiments.strategies import BEST_STATIC, MANUAL, UNCONTROLLED
from trilithon.experiments.suite import ComparedFigure, ExperimentResult

# An hour of the traces in which more than chance was missed.
LOW: Final = 0.95
STRATEGY_TEXTS: Final = {
    UNCONTROLLED.name: "leaves every job as it began.",
    MANUAL.name: (
        "begins with the allocation that a person would choose so that all intents are met at "
        "median load: from one instance each, the busiest operator of a job that misses its "
        "intent gets more until none does."
    ),
    BEST_STATIC.name: (
        "begins with the best allocation that a search finds for the whole run, which it knows "
        "in advance: a hill climb from the manual allocation and from one for the highest load, "
        "in which identical jobs have the same numbers; where that does not meet all intents, "
        "another climb from the better of that and the policy's final allocation, in which they "
        f"may differ. A climb tries at most {MOST_TRIED} allocations, so the best that there is "
        "may be better."
    ),
}


def page(results: PaperResults, paper: Paper, name: str) -> str:
    """The page; `name` is its file's name without the suffix."""
    plots = available_plots(results, paper)
    parts = [
        f"# {paper.title}'s experiments\n",
        paper.introduction,
        _overview(results, paper, name),
    ]
    for result in results.experiments:
        own = [plot for plot in plots if plot.section == result.experiment.name]
        if own:
            parts.append(_experiment(result, paper, own))
    if results.ranking is not None:
        parts.append(_mixes(results.ranking, paper, plots))
    if results.moved:
        parts.append(_moves(results, paper, plots, name))
    if results.spark:
        parts.append(_spark(results.spark, paper, plots))
    parts.append(_method(paper, name))
    return "\n".join(parts)


def _command(paper: Paper) -> str:
    return f"trilithon experiment {paper.name}"


def _overview(results: PaperResults, paper: Paper, name: str) -> str:
    """Headline figures, and every figure that is worse, differs or is missing."""
    shown = [
        (result, compared)
        for result in results.experiments
        for compared in result.figures
        if compared.figure.headline or compared.worse or compared.ours is None
    ]
    figures = [compared for result in results.experiments for compared in result.figures]
    comparable = [c for c in figures if c.worse is not None and c.figure.more_is_better is not None]
    worse = [c for c in comparable if c.worse]
    lines = [
        "## Ours beside the paper's\n",
        (
            f"Of {len(figures)} figures that the texts print, {len(comparable)} can be compared "
            f"and have a better direction: {len(comparable) - len(worse)} are as good as the "
            f"paper's or better, {len(worse)} are worse. The table has the headline figures and "
            f"every one that is worse, differs or is missing; [the details]({name}-details.md) "
            "have all of them.\n"
        ),
        table(
            ("experiment", "figure", "paper", "here", ""),
            [
                (
                    result.experiment.name,
                    compared.figure.name,
                    number(compared.figure.value, compared.figure.unit),
                    number(compared.ours, compared.figure.unit),
                    verdict(compared),
                )
                for result, compared in shown
            ],
        ),
    ]
    reasons = list(_reasons(shown, paper))
    if reasons:
        lines += ["Where ours is worse, differs or is missing:\n", *reasons, ""]
    return "\n".join(lines)


def _reasons(
    shown: Sequence[tuple[ExperimentResult, ComparedFigure]], paper: Paper
) -> Iterator[str]:
    """A line for each reason, with the figures that it explains."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for result, compared in shown:
        why = reason(paper, result, compared)
        if why is not None:
            by_reason.setdefault((result.experiment.name, why), []).append(compared.figure.name)
    for (experiment, why), figures in by_reason.items():
        yield f"- **{experiment}**, {'; '.join(figures)}: {why}"


def _experiment(result: ExperimentResult, paper: Paper, plots: Sequence[Plot]) -> str:
    one = result.experiment
    lines = [f"## {one.name}\n", f"{capitalised(one.about)} ({one.source}).\n"]
    finding = paper.findings.get(one.name)
    if finding is not None and result.facts:
        lines.append(f"{finding.sentence(result.facts)}\n")
    return "\n".join([*lines, *_images(plots)])


def _images(plots: Sequence[Plot]) -> list[str]:
    return [f"![{plot.caption}]({plot.file})\n\n*{plot.caption}*\n" for plot in plots]


def _section(plots: Sequence[Plot], name: str) -> list[str]:
    return _images([plot for plot in plots if plot.section == name])


def _mixes(ranking: Ranking, paper: Paper, plots: Sequence[Plot]) -> str:
    own, count = paper.policy.name, ranking.mixes
    rows = [
        (
            paper.label(name),
            percent(ranking.mean[name]),
            percent(ranking.tenth[name]),
            f"{ranking.rank[name]:.2f}",
            "" if name == own else str(ranking.better[own, name]),
            "" if name == own else str(ranking.same[own, name]),
            "" if name == own else str(ranking.better[name, own]),
        )
        for name in ranking.mean
    ]
    heads = (
        "",
        "mean satisfaction",
        "10th percentile",
        "mean rank",
        f"{paper.title} better in",
        "same in",
        f"{paper.title} worse in",
    )
    return "\n".join(
        [
            "## Random mixes\n",
            (
                "Any absolute figure can be had by choosing service times, so the figures above "
                "tell whether the same things happen, not who is faster. Who comes out ahead on "
                f"jobs that nobody chose tells more: {count} mixes of three to ten jobs, drawn "
                f"from seeds {FIRST_SEED} to {FIRST_SEED + count - 1}, which were not looked at "
                "during development. Topologies, intents, priorities and loads over an hour and "
                "a half are random, clusters go from ample to too small, and the search tries "
                f"{TRIED} allocations of each (`{_command(paper)} mixes`). Less than "
                f"{100 * SAME:g} points apart is the same.\n"
            ),
            table(heads, rows),
            *_section(plots, "mixes"),
        ]
    )


def _moves(results: PaperResults, paper: Paper, plots: Sequence[Plot], name: str) -> str:
    return "\n".join(
        [
            "## Chosen numbers, halved and raised by half\n",
            (
                "Each number that the texts leave open is halved and raised by half in a run "
                f"that can depend on it (`{_command(paper)} chosen`). "
                f"{moves_summary(results.moved, paper)} [All "
                f"moves](./{name}-details.md#chosen-numbers-halved-and-raised-by-half).\n"
            ),
            *_section(plots, "chosen"),
        ]
    )


def _spark(runs: Sequence[SparkRunResult], paper: Paper, plots: Sequence[Plot]) -> str:
    from trilithon.experiments.spark_diurnal import (  # noqa: PLC0415 - imports Spark
        HOURS,
        LENGTH_S,
        SPARE_SLOTS,
        WARM_S,
    )
    from trilithon.experiments.tenants import TENANTS, slots  # noqa: PLC0415

    jobs = [(tenant.job.id, tenant.priority) for tenant in TENANTS]
    rows = [
        (
            paper.label(run.policy),
            percent(run.satisfaction),
            percent(run.worst_tenth),
            str(run.actions),
            str(sum(share < LOW for share in run.by_hour)),
            *(percent(run.by_job[job]) for job, _ in jobs),
        )
        for run in runs
    ]
    heads = (
        "",
        "satisfaction",
        "worst tenth",
        "actions",
        f"hours below {100 * LOW:.0f} %",
        *(f"{job} ({priority:g})" for job, priority in jobs),
    )
    return "\n".join(
        [
            "## On Spark\n",
            (
                f"Two days of two traces in {LENGTH_S / 60:.0f} minutes, an hour in "
                f"{LENGTH_S / HOURS:.0f} s, on Spark's real-time mode with a Kafka broker and two "
                "cores: the five jobs of `make demo`, neighbours with different traces, on "
                f"{slots() + SPARE_SLOTS} slots, of which they begin with {slots()}. One run per "
                f"policy; in the first {WARM_S:.0f} s no policy acts and nothing counts. Rounds, "
                "windows and waits are those of the demo, a few times shorter than the paper's. "
                "`threshold` raises the busiest operator of a job that misses a latency; `none` "
                "never acts. The worst tenth is what satisfaction exceeds for nine tenths of the "
                f"time, and the number after a job is its priority (`{_command(paper)} "
                "spark-diurnal`, an hour on an otherwise idle machine, not part of `all`).\n"
            ),
            table(heads, rows),
            f"{spark_sentences(runs, paper)}\n",
            *_section(plots, "spark"),
        ]
    )


def spark_sentences(runs: Sequence[SparkRunResult], paper: Paper) -> str:
    """What the runs show, from their numbers alone."""
    shares = [run.satisfaction for run in runs]
    told = listed(
        [
            f"{percent(run.satisfaction)} under {paper.label(run.policy)} ({run.actions} actions)"
            for run in runs
        ]
    )
    apart = 100 * (max(shares) - min(shares))
    sentences = [
        f"Satisfaction is {told}: at most {apart:.1f} points apart.",
        "Each policy was run once, so how far two runs under the same policy differ is not known.",
    ]
    known = [run for run in runs if run.by_hour]
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


def _method(paper: Paper, name: str) -> str:
    strategies = [
        f"- **{capitalised(paper.label(strategy.name))}** "
        + STRATEGY_TEXTS.get(strategy.name, "runs under this policy.")
        for strategy in paper.strategies
    ]
    command = _command(paper)
    return "\n".join(
        [
            "## How it was run\n",
            (
                "Everything but the part on Spark is simulated: the papers' jobs on the engine "
                "`storm`, as flows, in steps of a second ([the simulated "
                "cluster](../concepts/simulated.md)). Numbers that the texts leave open stand in "
                "`src/trilithon/scenarios/chosen.yaml`, in a common part and a part "
                f"`{paper.name}` ([how they were chosen](../adr/0011-the-papers-experiments.md)). "
                "Satisfaction is the share of the maximum utility that is reached.\n"
            ),
            *strategies,
            "",
            (
                f"`{command} all --into docs/results/{name}.md` runs everything and writes this "
                f"page, [the details]({name}-details.md) and the plots; `{command} NAME --into …` "
                f"runs one experiment anew, and `{command} page --into …` only writes pages and "
                f"plots from `{name}.json`.\n"
            ),
        ]
    )
