"""Writes the page of a paper's results: verdicts, the strategies over all runs, and the plots.

At most `MOST_WORDS` words and `MOST_PLOTS` plots; everything long is on the second page. Figures
that would make it longer are counted on the first page, and listed on the second.
"""

import re
from collections.abc import Collection, Sequence
from typing import Final

from trilithon.experiments.comparison import StrategyRecord, all_runs, compare_strategies
from trilithon.experiments.details_page import moves_summary
from trilithon.experiments.experiment_result import ExperimentResult
from trilithon.experiments.intervals import half_width
from trilithon.experiments.markdown import (
    capitalised,
    interval,
    listed,
    number,
    percent,
    stated,
    table,
)
from trilithon.experiments.mixes import FIRST_SEED, TRIED, MixResult, Ranking
from trilithon.experiments.paper import Paper
from trilithon.experiments.plots import Plot, available_plots, images
from trilithon.experiments.results import PaperResults
from trilithon.experiments.runner import MOST_TRIED
from trilithon.experiments.sensitivity import MovedRun
from trilithon.experiments.spark_section import spark_section
from trilithon.experiments.strategies import (
    BEST_STATIC,
    HEADROOM,
    MANUAL,
    MANUAL_HEADROOM,
    SAME,
    UNCONTROLLED,
    Strategy,
)
from trilithon.experiments.verdicts import (
    COUNTED,
    FigureVerdict,
    JudgedFigure,
    count_verdicts,
    judged_figures,
)
from trilithon.policies.registry import POLICIES

MOST_WORDS: Final = 2000
MOST_PLOTS: Final = 8
# A row of the figures' table has about so many words; no matter if it has more or fewer.
_ROW_WORDS: Final = 20
# Figures with their experiments.
Judged = Sequence[tuple[ExperimentResult, JudgedFigure]]
DISAGREE: Final = (FigureVerdict.WORSE, FigureVerdict.DIFFERENT)
STRATEGY_TEXTS: Final = {
    UNCONTROLLED.name: "leaves every job as it began.",
    MANUAL.name: (
        "is the allocation of a person who knows the median load: from one instance each, the "
        "busiest operator of a job that misses its intent gets more until none does."
    ),
    MANUAL_HEADROOM.name: (
        f"is the same for {HEADROOM:.2f} times the median load, which keeps operators "
        f"{100 / HEADROOM:.0f} % busy as Flink's autoscaler does by default."
    ),
    BEST_STATIC.name: (
        "is the best that a search finds with knowledge of the whole run: a hill climb from the "
        "manual allocation and from one for the highest load; where that misses intents, another "
        "from the better of that and the policy's final allocation, in which identical jobs may "
        f"differ. A climb tries at most {MOST_TRIED} allocations, so a better one may exist."
    ),
}


def words(text: str) -> int:
    """How many words a page has, those in its tables included."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def page(results: PaperResults, paper: Paper, name: str, own_pages: Collection[str] = ()) -> str:
    """The page; `name` is its file's name without the suffix, and `own_pages` are the parts whose
    own pages lie beside it.

    What would make this one too long stays on the second page: first the sentences about single
    figures, then as many of the figures as needed.
    """
    judged = [
        (result, one) for result in results.experiments for one in judged_figures(paper, result)
    ]
    rows = len(_listed_first(judged))
    text = _page(results, paper, name, own_pages, judged, rows, sentences=True)
    if words(text) > MOST_WORDS:
        text = _page(results, paper, name, own_pages, judged, rows, sentences=False)
    while rows and (excess := words(text) - MOST_WORDS) > 0:
        rows = max(0, rows - max(1, excess // _ROW_WORDS))
        text = _page(results, paper, name, own_pages, judged, rows, sentences=False)
    return text


def _page(
    results: PaperResults,
    paper: Paper,
    name: str,
    own_pages: Collection[str],
    judged: Judged,
    rows: int,
    *,
    sentences: bool,
) -> str:
    plots = [plot for plot in available_plots(results, paper) if not plot.in_details]
    parts = [
        f"# {paper.title}'s experiments\n",
        paper.introduction,
        f"{verdict_counts([one for _, one in judged])}\n",
        *earlier_versions(results),
        *_own_pages(paper, name, own_pages),
        _strategies(results, paper, name)
        if paper.overview is None
        else paper.overview(results, paper),
        _figures(judged, name, rows, with_sentences=sentences),
    ]
    shown = {plot.section for plot in plots}
    shown |= {name for name, finding in paper.findings.items() if finding.first_page}
    parts += [
        _experiment(result, paper, plots)
        for result in results.experiments
        if result.experiment.name in shown
    ]
    if results.ranking is not None:
        parts.append(_mixes(results.ranking, results.mixes, paper, plots))
    if results.moved:
        parts.append(_moves(results, paper, plots, name))
    if results.spark:
        parts.append(spark_section(results.spark, paper, name))
    for part in paper.sections:
        if part.name in results.extra:
            parts += [part.text(results.extra[part.name]["data"]), *images(plots, part.name)]
    parts.append(_method(paper, name))
    return "\n".join(parts)


def earlier_versions(results: PaperResults) -> list[str]:
    """Which results an earlier version of the code made: their numbers would be others today."""
    made_by = {result.experiment.name: result.made_by for result in results.experiments}
    if results.ranking is not None:
        made_by["mixes"] = results.mixes_made_by
    if results.moved:
        made_by["chosen"] = results.moved_made_by
    unknown = [name for name, version in made_by.items() if version is None]
    parts = []
    if unknown:
        parts.append(
            "**From an earlier version** of the policy, the simulated cluster and the chosen "
            f"numbers, and to be run again: {', '.join(unknown)}.\n"
        )
    if len(versions := {version for version in made_by.values() if version is not None}) > 1:
        parts.append(f"The other results were made by {len(versions)} versions of the code.\n")
    return parts


def _own_pages(paper: Paper, name: str, own_pages: Collection[str]) -> list[str]:
    """Links to what has a page of its own."""
    shown = [part for part in paper.pages if part.name in own_pages]
    links = [f"- [{part.name}]({name}-{part.name}.md): {part.about}" for part in shown]
    return ["On pages of their own:\n", *links, ""] if links else []


def verdict_counts(judged: Sequence[JudgedFigure]) -> str:
    """How many figures agree, are better, worse, different, void, or cannot be compared."""
    counts = count_verdicts(judged)
    counted = sum(counts[verdict] for verdict in COUNTED)
    head = (
        f"All {counted} figures that the texts print are counted"
        if counted == len(judged)
        else f"Of {len(judged)} figures that the texts print, {counted} are counted"
    )
    return (
        f"{head}: **{counts[FigureVerdict.AGREES]} as in the paper** (within 10 %, or one "
        f"percentage point), **{counts[FigureVerdict.BETTER]} better**, "
        f"**{counts[FigureVerdict.WORSE]} worse**, "
        f"**{counts[FigureVerdict.DIFFERENT]} different** (no direction is better)."
        + _not_counted(judged)
    )


def _not_counted(judged: Sequence[JudgedFigure]) -> str:
    """What else there is to say of the figures, and nothing of what there is none of."""
    counts = count_verdicts(judged)
    void, missing = counts[FigureVerdict.VOID], counts[FigureVerdict.NOT_MEASURED]
    said = sum(bool(one.compared.figure.words) for one in judged)
    return (
        (
            f" {void} {'is' if void == 1 else 'are'} void: nothing was decided in their runs, or a "
            "fault's end brought satisfaction back."
            if void
            else ""
        )
        + (
            f" {other} cannot be compared."
            if (other := counts[FigureVerdict.NOT_COMPARABLE])
            else ""
        )
        + (f" {missing} have no number in the stored results." if missing else "")
        + (f" {said} are words without a number, which must hold." if said else "")
    )


def _strategies(results: PaperResults, paper: Paper, name: str) -> str:
    runs = all_runs(results.experiments)
    names = [strategy.name for strategy in paper.strategies]
    records = list(compare_strategies(runs, names, paper.policy.name))
    if not records:
        return ""
    rows = [
        (
            paper.label(record.name),
            percent(record.satisfaction),
            number(record.worst_tenth, "ratio"),
            number(record.instance_hours, ""),
            *_standing(record, paper),
        )
        for record in records
    ]
    return "\n".join(
        [
            "## The strategies over all runs\n",
            (
                f"Means over {len(runs)} runs ([each of them]({name}-details.md)), and the sum of "
                "instance-hours while the policy may act. The worst tenth is what satisfaction "
                "exceeds for nine tenths of the time. Less than "
                f"{100 * SAME:g} points apart is the same.\n"
            ),
            table(("", "satisfaction", "worst tenth", "instance-hours", *_ahead(paper)), rows),
        ]
    )


def _ahead(paper: Paper) -> tuple[str, str, str]:
    return (f"{paper.title} better in", "same in", f"{paper.title} worse in")


def _standing(record: StrategyRecord, paper: Paper) -> tuple[str, str, str]:
    if record.name == paper.policy.name:
        return "", "", ""
    return str(record.policy_better), str(record.same), str(record.policy_worse)


def _listed_first(judged: Judged) -> Judged:
    """Headline figures, and then every other one that is worse or different."""
    headline = [pair for pair in judged if pair[1].compared.figure.headline]
    others = [
        pair
        for pair in judged
        if not pair[1].compared.figure.headline and pair[1].verdict in DISAGREE
    ]
    return [*headline, *others]


def _figures(judged: Judged, name: str, rows: int, *, with_sentences: bool) -> str:
    """The table of so many figures, how many more there are, and sentences about the worse ones."""
    first = _listed_first(judged)
    kept = {id(one) for _, one in first[:rows]}
    shown = [(result, one) for result, one in judged if id(one) in kept]
    others = (
        "every one that is worse or different"
        if rows >= len(first)
        else "those that are worse or different, as far as there is room"
    )
    lines = [
        "## Ours beside the paper's\n",
        (
            f"Headline figures, and {others}; [the "
            f"details]({name}-details.md) have all, with a sentence for each.\n"
        ),
        table(
            ("experiment", "figure", "paper", "here", ""),
            [
                (
                    result.experiment.name,
                    one.compared.figure.name,
                    stated(one.compared.figure),
                    interval(one.compared.ours, one.compared.half_width, one.compared.figure.unit),
                    str(one.verdict),
                )
                for result, one in shown
            ],
        ),
        *_left_out([one for _, one in first[rows:]], name),
    ]
    sentences = [
        f"- **{result.experiment.name}**, {one.compared.figure.name}: {one.sentence}"
        for result, one in shown
        if one.compared.figure.headline and one.verdict in DISAGREE
    ]
    if sentences and with_sentences:
        lines += ["Headline figures that are worse or different:\n", *sentences, ""]
    return "\n".join(lines)


def _left_out(judged: Sequence[JudgedFigure], name: str) -> list[str]:
    """How many figures there was no room for."""
    if not judged:
        return []
    disagree = sum(one.verdict in DISAGREE for one in judged)
    which = (
        "that are worse or different"
        if disagree == len(judged)
        else f"of which {disagree} are worse or different"
    )
    return [f"… and {len(judged)} more {which}: [the details]({name}-details.md).\n"]


def _experiment(result: ExperimentResult, paper: Paper, plots: Sequence[Plot]) -> str:
    experiment = result.experiment
    lines = [f"## {experiment.name}\n", f"{capitalised(experiment.about)} ({experiment.source}).\n"]
    finding = paper.findings.get(experiment.name)
    if finding is not None and result.facts:
        lines.append(f"{finding.sentence(result.facts)}\n")
    return "\n".join([*lines, *images(plots, experiment.name)])


def _mixes(
    ranking: Ranking, mixes: Sequence[MixResult], paper: Paper, plots: Sequence[Plot]
) -> str:
    own, count = paper.policy.name, ranking.mixes
    # Older results do not keep every mix that was ranked.
    each = mixes if len(mixes) == count else ()
    rows = [
        (
            paper.label(name),
            interval(ranking.mean[name], _over_mixes(each, name), "ratio"),
            "" if name == own else _gap(each, own, name),
            number(ranking.worst_tenth.get(name), "ratio"),
            number(ranking.instance_hours.get(name), ""),
            f"{ranking.rank[name]:.2f}",
            "" if name == own else str(ranking.better[own, name]),
            "" if name == own else str(ranking.same[own, name]),
            "" if name == own else str(ranking.better[name, own]),
        )
        for name in ranking.mean
    ]
    heads = (
        "",
        "satisfaction",
        f"{paper.title} ahead by",
        "worst tenth",
        "instance-hours",
        "mean rank",
        *_ahead(paper),
    )
    return "\n".join(
        [
            "## Random mixes\n",
            f"{paper.mixes_text(mixes)} (`{paper.command} mixes`).\n"
            if paper.mixes_text is not None
            else (
                "Any absolute figure can be had by choosing service times. Who comes out ahead on "
                f"jobs that nobody chose tells more: {count} mixes of three to ten jobs, from "
                f"seeds {FIRST_SEED} to {FIRST_SEED + count - 1}, which were not looked at during "
                "development. Topologies, intents, priorities and loads over an hour and a half "
                "are random, clusters go from ample to too small, and the search tries "
                f"{TRIED} allocations (`{paper.command} mixes`).\n"
            ),
            table(heads, rows),
            *(["± is half of a 95 % interval of the mean over all mixes.\n"] if each else []),
            *images(plots, "mixes"),
        ]
    )


def _over_mixes(mixes: Sequence[MixResult], name: str, less: str = "") -> float | None:
    """Half of the interval of the mean satisfaction, or of the gap to another strategy's."""
    return half_width(
        [mix.satisfaction[name] - (mix.satisfaction[less] if less else 0.0) for mix in mixes]
    )


def _gap(mixes: Sequence[MixResult], own: str, other: str) -> str:
    """By how much the policy is ahead of another strategy, mix by mix."""
    width = _over_mixes(mixes, own, other)
    if width is None:
        return "–"
    gap = sum(mix.satisfaction[own] - mix.satisfaction[other] for mix in mixes) / len(mixes)
    return f"{100 * gap:+.1f} ± {100 * width:.1f} points"


def _moves(results: PaperResults, paper: Paper, plots: Sequence[Plot], name: str) -> str:
    return "\n".join(
        [
            "## Chosen numbers, halved and raised by half\n",
            (
                "Each number that the texts leave open is halved and raised by half in a run "
                f"that can depend on it (`{paper.command} chosen`). "
                f"{moves_summary(results.moved, paper)} [All "
                f"moves](./{name}-details.md#chosen-numbers-halved-and-raised-by-half).\n"
            ),
            *_beside(results.moved, paper),
            *images(plots, "chosen"),
        ]
    )


def _beside(moved: Sequence[MovedRun], paper: Paper) -> list[str]:
    """The results with the other word of a chosen one beside those with that word."""
    plan = paper.sensitivity
    if plan is None or not plan.beside:
        return []
    (word,) = plan.words[plan.beside]
    path = f"{plan.beside}={word}"
    runs = {(run.move.experiment, run.move.variant, run.move.path): run for run in moved}
    names = (paper.policy.name, UNCONTROLLED.name)
    rows = [
        (
            f"{experiment} {variant}",
            *(
                percent(run.satisfaction[name])
                for name in names
                for run in (runs[experiment, variant, None], other)
            ),
        )
        for (experiment, variant, moved_path), other in runs.items()
        if moved_path == path
    ]
    heads = [
        head
        for name in names
        for head in (f"{paper.label(name)}, as chosen", f"{paper.label(name)}, {path}")
    ]
    text = "Irregular arrivals as chosen (decision 13), and exponential gaps beside them:\n"
    return [text, table(("run", *heads), rows)] if rows else []


def _method(paper: Paper, name: str) -> str:
    strategies = [
        f"- **{capitalised(paper.label(strategy.name))}**{_strategy_text(strategy, paper)}"
        for strategy in paper.strategies
    ]
    command = paper.command
    return "\n".join(
        [
            "## How it was run\n",
            f"{paper.method}\n"
            if paper.method
            else (
                "Everything but the part on Spark is simulated: the papers' jobs on the engine "
                f"{paper.engines}, as flows, in steps of a second ([the simulated "
                "cluster](../concepts/simulated.md)). Numbers that the texts leave open stand in "
                "`src/trilithon/scenarios/chosen.yaml` ([how they were "
                "chosen](../adr/0011-the-papers-experiments.md)). Satisfaction is the share of "
                "the maximum utility that is reached. All policies only observe for the same time, "
                f"and the guard lets everything through. {_seeds(paper)}\n"
            ),
            *strategies,
            "",
            (
                f"`{command} all --into docs/results/{name}.md` runs all of it but what runs on "
                f"Spark, and writes this page, [the details]({name}-details.md) and the plots; "
                f"interrupted, it goes on where it was. `{command} NAME --into …` runs one "
                f"experiment anew{_kept_parts(paper)}. `{command} page --into …` only writes pages "
                "and plots from "
                f"`{name}.json`.\n"
            ),
        ]
    )


def _seeds(paper: Paper) -> str:
    """What is run with which seeds, and of which the page shows the numbers."""
    others = [
        *(["a random mix has its own seed"] if paper.has_mixes else []),
        *(["moved numbers share one"] if paper.sensitivity is not None else []),
        "what no seed changes is run once",
    ]
    return (
        f"The experiments are run with {len(paper.seeds)} seeds, and ± is half of a 95 % interval "
        f"(Student's t); {', '.join(others)}. Curves over time, distributions and findings are of "
        "the first seed."
    )


def _kept_parts(paper: Paper) -> str:
    """Which parts go on where they were, as a part of a sentence."""
    names = [part.name for part in paper.pages]
    if paper.spark is not None:
        names.append("spark-diurnal")
    if not names:
        return ""
    kept = listed([f"`{name}`" for name in names])
    verb = "goes" if len(names) == 1 else "go"
    return (
        f"; {kept} {verb} on with results of the same code and chosen numbers, "
        "unless `--again` is given"
    )


def _strategy_text(strategy: Strategy, paper: Paper) -> str:
    if strategy.difference:
        return f": {strategy.difference}."
    if not strategy.policy:
        return f" {STRATEGY_TEXTS[strategy.name]}"
    if strategy.other_timing:
        return f": the same with {paper.title}'s timing, in the random mixes."
    return f": {POLICIES[strategy.policy].summary}."
