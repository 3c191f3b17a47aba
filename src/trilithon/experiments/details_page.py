"""Writes the second page of a paper's results: all figures, all variants, all moved numbers."""

from collections.abc import Iterator, Mapping, Sequence

from trilithon.experiments.markdown import capitalised, number, reason, table, verdict
from trilithon.experiments.paper import Paper
from trilithon.experiments.results import PaperResults
from trilithon.experiments.sensitivity import FACTORS, MovedRun
from trilithon.experiments.strategies import UNCONTROLLED
from trilithon.experiments.suite import ExperimentResult, RunSummary


def details_page(results: PaperResults, paper: Paper, name: str) -> str:
    """The page; `name` is the name of the first page's file without the suffix."""
    parts = [
        f"# {paper.title}'s experiments in detail\n",
        (
            f"Written from `{name}.json` with [the overview]({name}.md), which says how "
            "everything was run.\n"
        ),
        *(_experiment(result, paper) for result in results.experiments),
    ]
    if results.moved:
        parts.append(_moved(results, paper))
    return "\n".join(parts)


def _experiment(result: ExperimentResult, paper: Paper) -> str:
    one = result.experiment
    rows = [
        (
            compared.figure.name,
            number(compared.figure.value, compared.figure.unit),
            number(compared.ours, compared.figure.unit),
            verdict(compared),
            compared.figure.source,
        )
        for compared in result.figures
    ]
    parts = [
        f"## {one.name}\n",
        f"{capitalised(one.about)} ({one.source}). Chosen: {'; '.join(one.chosen) or 'nothing'}.\n",
        table(("", "paper", "here", "", "source"), rows),
    ]
    finding = paper.findings.get(one.name)
    if finding is not None and result.facts:
        parts.append(f"{finding.sentence(result.facts)}\n")
    reasons = [why for compared in result.figures if (why := reason(paper, result, compared))]
    if reasons:
        parts += [*(f"- {why}" for why in dict.fromkeys(reasons)), ""]
    parts.append(_variants(result.summaries, paper))
    return "\n".join(parts)


def _variants(summaries: Mapping[str, Mapping[str, RunSummary]], paper: Paper) -> str:
    names = [strategy.name for strategy in paper.strategies]
    own = paper.policy.name
    heads = (
        "satisfaction, mean / at the end",
        *map(paper.label, names),
        f"{paper.title}'s actions",
        "instances at the end",
    )

    def cell(summary: RunSummary) -> str:
        return f"{100 * summary.average:.1f} / {100 * summary.at_end:.1f} %"

    rows = [
        (
            variant,
            *(cell(by_strategy[name]) for name in names),
            str(by_strategy[own].actions),
            str(by_strategy[own].instances),
        )
        for variant, by_strategy in summaries.items()
    ]
    return table(heads, rows)


def _moved(results: PaperResults, paper: Paper) -> str:
    moved = results.moved
    labels = " / ".join(paper.label(strategy.name) for strategy in paper.cheap_strategies)
    families = dict.fromkeys(map(_family, results.unmoved))
    parts = [
        "## Chosen numbers, halved and raised by half\n",
        (
            f"Mean satisfaction of {labels}, in a run that can depend on the number, and in the "
            f"one that nearly fills its machines (`trilithon experiment {paper.name} chosen`). A "
            f"number of the common part goes by its name there, `{paper.name}.` are those of the "
            "paper's part and `policy.` the policy's own parameters that had to be chosen. The "
            "first row of a run is with everything as chosen; of a word, the other ones are "
            "tried.\n"
        ),
        table(("run", "number", "× 0.5", "× 1.5"), _moved_rows(moved, paper)),
        f"{moves_summary(moved, paper)}\n",
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
        return " / ".join(f"{100 * run.satisfaction[name]:.1f}" for name in names) + " %"

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
    """How far the policy's satisfaction moved, and whether it stayed ahead of doing nothing."""
    own = paper.policy.name
    base = {
        (run.move.experiment, run.move.variant): run.satisfaction[own]
        for run in moved
        if run.move.path is None
    }
    runs = [run for run in moved if run.move.path is not None]
    ahead = sum(run.satisfaction[own] >= run.satisfaction[UNCONTROLLED.name] for run in runs)
    changes = [
        abs(run.satisfaction[own] - base[run.move.experiment, run.move.variant]) for run in runs
    ]
    small = sum(change <= 0.05 for change in changes)
    return (
        f"Of {len(runs)} runs with a number moved, {paper.title} is at least as good as "
        f"uncontrolled in {ahead}, and its satisfaction moves by at most five percentage points "
        f"in {small}; the largest move is {100 * max(changes, default=0.0):.1f} points."
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
                number(figure.value, figure.unit),
                number(base.figures[figure.name], figure.unit),
                ends[0],
                ends[1] + missing,
            )
