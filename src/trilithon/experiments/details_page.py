"""Writes the second page of a paper's results: all figures, all variants, all moved numbers."""

from collections.abc import Iterator, Mapping, Sequence

from trilithon.experiments.experiment_result import (
    AVERAGE,
    INSTANCE_HOURS,
    ExperimentResult,
    RunSummary,
)
from trilithon.experiments.markdown import (
    capitalised,
    interval,
    listed,
    number,
    percent,
    stated,
    table,
)
from trilithon.experiments.paper import Paper
from trilithon.experiments.plots import Plot, available_plots, images
from trilithon.experiments.results import PaperResults
from trilithon.experiments.sensitivity import FACTORS, MovedRun
from trilithon.experiments.spark_results import SparkRunResult, by_policy, of_earlier_set_up
from trilithon.experiments.strategies import SAME
from trilithon.experiments.verdicts import judged_figures


def details_page(results: PaperResults, paper: Paper, name: str) -> str:
    """The page; `name` is the name of the first page's file without the suffix."""
    plots = [plot for plot in available_plots(results, paper) if plot.in_details]
    parts = [
        f"# {paper.title}'s experiments in detail\n",
        (
            f"Written from `{name}.json` with [the overview]({name}.md), which says how "
            "everything was run.\n"
        ),
        *(_experiment(result, paper, plots) for result in results.experiments),
    ]
    if results.moved:
        parts.append(_moved(results, paper, plots))
    if results.spark:
        parts.append(_spark(results.spark, paper, plots))
    return "\n".join(parts)


def _experiment(result: ExperimentResult, paper: Paper, plots: Sequence[Plot]) -> str:
    experiment = result.experiment
    judged = judged_figures(paper, result)
    rows = [
        (
            one.compared.figure.name,
            stated(one.compared.figure),
            interval(one.compared.ours, one.compared.half_width, one.compared.figure.unit),
            str(one.verdict),
            one.compared.figure.source,
        )
        for one in judged
    ]
    chosen = _listed_choices(experiment.chosen)
    parts = [
        f"## {experiment.name}\n",
        f"{capitalised(experiment.about)} ({experiment.source}). Chosen: {chosen}\n",
        table(("", "paper", "here", "", "source"), rows),
    ]
    finding = paper.findings.get(experiment.name)
    if finding is not None and result.facts:
        parts.append(f"{finding.sentence(result.facts)}\n")
    sentences = [f"- {one.compared.figure.name}: {one.sentence}" for one in judged if one.sentence]
    if sentences:
        parts += [*sentences, ""]
    parts += [_variants(result.summaries, paper), *images(plots, experiment.name)]
    return "\n".join(parts)


def _listed_choices(chosen: Sequence[str]) -> str:
    """What was chosen, with one stop at its end. What comes as sentences stays sentences."""
    between = ". " if any(text.endswith(".") for text in chosen) else "; "
    return f"{between.join(text.rstrip('.') for text in chosen) or 'nothing'}."


def _variants(summaries: Mapping[str, Mapping[str, RunSummary]], paper: Paper) -> str:
    """Each variant under each strategy that it was run under."""
    heads = (
        "run",
        "strategy",
        "satisfaction",
        "worst tenth",
        "at the end",
        "actions",
        "instances at the end",
        "instance-hours",
    )
    rows = [
        (
            variant if i == 0 else "",
            paper.label(name),
            interval(summary.average, summary.half_widths.get(AVERAGE), "ratio"),
            number(summary.worst_tenth, "ratio"),
            percent(summary.at_end),
            number(summary.actions, ""),
            number(summary.instances, ""),
            interval(summary.instance_hours, summary.half_widths.get(INSTANCE_HOURS), ""),
        )
        for variant, by_strategy in summaries.items()
        for i, (name, summary) in enumerate(by_strategy.items())
    ]
    seeds = max(
        (summary.runs for by_strategy in summaries.values() for summary in by_strategy.values()),
        default=1,
    )
    how = (
        f"Means over {seeds} seeds, with 95 % intervals.\n"
        if seeds > 1
        else "Nothing is random here: each strategy was run once.\n"
    )
    return f"{table(heads, rows)}\n{how}"


def _moved(results: PaperResults, paper: Paper, plots: Sequence[Plot]) -> str:
    moved = results.moved
    labels = " / ".join(paper.label(strategy.name) for strategy in paper.cheap_strategies)
    families = dict.fromkeys(map(_family, results.unmoved))
    parts = [
        "## Chosen numbers, halved and raised by half\n",
        (
            f"Mean satisfaction of {labels}, in a run that can depend on the number, and in the "
            f"one that nearly fills its machines (`{paper.command} chosen`). A "
            f"number of the common part goes by its name there, `{paper.name}.` are those of the "
            "paper's part and `policy.` the policy's own parameters that had to be chosen. The "
            "first row of a run is with everything as chosen; of a word, the other ones are "
            "tried. All runs have the same seed.\n"
        ),
        table(("run", "number", "× 0.5", "× 1.5"), _moved_rows(moved, paper)),
        f"{moves_summary(moved, paper)}\n",
        *images(plots, "chosen"),
        (
            "The paper's figures in the runs that are all of their experiments: as chosen, and "
            "the lowest and the highest over all moves in that run.\n"
        ),
        table(("run", "figure", "paper", "as chosen", "lowest", "highest"), _spans(moved, paper)),
    ]
    if families:
        parts.append(
            "Not moved, since no run here depends on it, or because it is 0: "
            f"{', '.join(f'`{path}`' for path in families)}.\n"
        )
    return "\n".join(parts)


def _family(path: str) -> str:
    """Many numbers of one kind as one: all of a machine's, or of a job's profiles."""
    top, *rest = path.split(".")
    if top in {"machine", "machines"}:
        return f"{top}.*"
    return f"{top}.{rest[0]}.*" if top == "profiles" else path


def _moved_rows(moved: Sequence[MovedRun], paper: Paper) -> Iterator[tuple[str, str, str, str]]:
    names = [strategy.name for strategy in paper.cheap_strategies]

    def cell(run: MovedRun | None) -> str:
        if run is None:
            return "the same"
        shares = (run.satisfaction.get(name) for name in names)
        return " / ".join("–" if share is None else f"{100 * share:.1f}" for share in shares) + " %"

    by_key = {
        (run.move.experiment, run.move.variant, run.move.path, run.move.factor): run
        for run in moved
    }
    keys = dict.fromkeys((r.move.experiment, r.move.variant, r.move.path) for r in moved)
    places = {key[:2]: i for i, key in enumerate(keys) if key[2] is None}
    for experiment, variant, path in sorted(keys, key=lambda k: (places[k[:2]], k[2] or "")):
        run = f"{experiment} {variant}"
        if path is None or "=" in path:
            shown = "as chosen" if path is None else f"`{path}`"
            yield run, shown, cell(by_key[experiment, variant, path, 1.0]), ""
            continue
        halved, raised = (by_key.get((experiment, variant, path, factor)) for factor in FACTORS)
        yield run, f"`{path}`", cell(halved), cell(raised)


def moves_summary(moved: Sequence[MovedRun], paper: Paper) -> str:
    """How far the policy's satisfaction moved, and whether it stayed ahead of the others."""
    own = paper.policy.name
    base = {
        (run.move.experiment, run.move.variant): run.satisfaction[own]
        for run in moved
        if run.move.path is None
    }
    runs = [run for run in moved if run.move.path is not None]
    ahead = []
    for strategy in paper.cheap_strategies[1:]:
        known = [run for run in runs if strategy.name in run.satisfaction]
        better = sum(
            run.satisfaction[own] >= run.satisfaction[strategy.name] - SAME for run in known
        )
        if known:
            ahead.append(f"{paper.label(strategy.name)} in {better}")
    changes = [
        abs(run.satisfaction[own] - base[run.move.experiment, run.move.variant]) for run in runs
    ]
    small = sum(change <= 0.05 for change in changes)
    return (
        f"Of {len(runs)} runs with a number moved, {paper.title} is at least as good as "
        f"{listed(ahead)}, and its satisfaction moves by at most five percentage points in "
        f"{small}; the largest move is {100 * max(changes, default=0.0):.1f} points."
    )


def _spans(moved: Sequence[MovedRun], paper: Paper) -> Iterator[tuple[str, ...]]:
    """How far each figure goes, and in how many runs it has no value."""
    for base in moved:
        move = base.move
        if move.path is not None or not base.figures:
            continue
        others = [
            run.figures
            for run in moved
            if run.move.path is not None
            and (run.move.experiment, run.move.variant) == (move.experiment, move.variant)
        ]
        for figure in paper.by_name[move.experiment].figures:
            values = [figures[figure.name] for figures in others]
            known = [value for value in values if value is not None]
            missing = f", none in {len(values) - len(known)}" if len(known) < len(values) else ""
            ends = [number(end(known), figure.unit) if known else "–" for end in (min, max)]
            yield (
                f"{move.experiment} {move.variant}",
                figure.name,
                stated(figure),
                number(base.figures[figure.name], figure.unit),
                ends[0],
                ends[1] + missing,
            )


def _spark(runs: Sequence[SparkRunResult], paper: Paper, plots: Sequence[Plot]) -> str:
    from trilithon.experiments.tenants import TENANTS  # noqa: PLC0415

    jobs = [(tenant.job.id, tenant.priority) for tenant in TENANTS]
    heads = ("", *(f"{job} ({priority:g})" for job, priority in jobs))
    rows = [
        (paper.label(run.policy), *(percent(run.by_job[job]) for job, _ in jobs))
        for run in by_policy(runs)
    ]
    return "\n".join(
        [
            "## On Spark\n",
            _spark_set_up(runs),
            "The table has the satisfaction of each job, with its priority.\n",
            table(heads, rows),
            *images(plots, "spark"),
        ]
    )


def _spark_set_up(runs: Sequence[SparkRunResult]) -> str:
    from trilithon.experiments.diurnal_loads import (  # noqa: PLC0415
        BUSY_AT_PEAK,
        NEED_AT_PEAK,
        scarce_slots,
    )
    from trilithon.experiments.spark_diurnal import (  # noqa: PLC0415 - imports Spark
        HOURS,
        LENGTH_S,
        WARM_S,
    )
    from trilithon.experiments.tenants import slots  # noqa: PLC0415

    machine = (
        "on Spark's real-time mode with a Kafka broker and two cores: the five jobs of `make "
        "demo`, neighbours with different traces"
    )
    if of_earlier_set_up(runs):
        hours = max((len(run.by_hour) for run in runs), default=0)
        return (
            f"**From an earlier set-up**, to be run again: {hours} hours of two traces, {machine}, "
            "with as many slots as their loads need nearly all the time.\n"
        )
    return (
        f"A day of two traces in {LENGTH_S / 60:.0f} minutes, an hour in {LENGTH_S / HOURS:.0f} s, "
        f"{machine}, on {scarce_slots()} slots, of which they begin with {slots()}. The loads and "
        "the slots were chosen before the runs by one rule: in the busiest hour of its trace the "
        f"slowest operator of each job that waits needs {BUSY_AT_PEAK:g} instances, and all jobs "
        f"together need {NEED_AT_PEAK:g} times the slots. In the first {WARM_S:.0f} s no policy "
        "acts and nothing counts. Rounds, windows and waits are those of the demo, a few times "
        "shorter than the paper's.\n"
    )
