"""Runs the papers' experiments from the command line and writes their result pages."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from trilithon import folders
from trilithon.cli.output import Format, Output, answer, progress, table
from trilithon.cli.processes import leaving_on_termination
from trilithon.errors import FileUnwritable, NotFound
from trilithon.experiments.papers import PAPERS, RegisteredPaper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trilithon.experiments.paper import Paper, PaperPart, PartRun
    from trilithon.experiments.results import PaperResults
    from trilithon.scenarios.chosen import ChosenNumbers

app = typer.Typer(help="The papers' experiments.", no_args_is_help=True)
MIXES: Final = "mixes"
CHOSEN: Final = "chosen"
SPARK: Final = "spark-diurnal"
ALL: Final = "all"
PAGE: Final = "page"
MADE_BY: Final = "made_by"
CORES: Final = max(1, os.cpu_count() or 1)
Name = Annotated[
    str,
    typer.Argument(
        help="An experiment, a part of the paper (mixes, chosen, diagnoses, spark-diurnal …), "
        "all, or page.",
        show_default=False,
    ),
]
Into = Annotated[
    Path | None,
    typer.Option(
        "--into",
        help="The page of results. Its numbers (JSON), a page of details and plots are written "
        "beside it. What is run replaces what was there as soon as it is done; `page` only writes "
        "pages and plots again.",
    ),
]
Workers = Annotated[int, typer.Option("--workers", help="Processes side by side.", min=1)]
ChosenFile = Annotated[
    Path | None, typer.Option("--chosen", help="Another file of chosen numbers.")
]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Keep nothing that the files beside --into have. Without it, `all`, the parts with a "
        "page of their own and those on Spark go on with what the same code and chosen numbers "
        "made. A single experiment is run anew, unless it was interrupted: then it goes on with "
        "the runs that it has done.",
    ),
]


def _register(entry: RegisteredPaper) -> None:
    def command(
        name: Name,
        into: Into = None,
        workers: Workers = CORES,
        chosen: ChosenFile = None,
        again: Again = False,
        output: Output = Format.TABLE,
    ) -> None:
        with leaving_on_termination():
            experiment(entry, name, into, workers, chosen, again, output)

    command.__doc__ = f"""Run the experiments of {entry.title} on the simulated cluster.

    What begins with `spark-` runs on Spark and is not part of `all`: it wants an otherwise idle
    machine for an hour or two.
    """
    app.command(entry.name)(command)


for _entry in PAPERS.values():
    _register(_entry)


def experiment(
    entry: RegisteredPaper,
    name: str,
    into: Path | None,
    workers: int,
    chosen_file: Path | None,
    again: bool,
    output: Format,
) -> None:
    # The simulated cluster is slow to import, and most commands do without.
    from trilithon.experiments import results as store  # noqa: PLC0415
    from trilithon.experiments import suite  # noqa: PLC0415
    from trilithon.experiments.paper import PartRun  # noqa: PLC0415
    from trilithon.experiments.provenance import fingerprint  # noqa: PLC0415

    paper = entry.load()
    known = [*paper.by_name, *_parts_of(paper), *(part.name for part in paper.pages), ALL, PAGE]
    if name not in known:
        raise NotFound(
            f"{paper.title} has no experiment {name!r}.", f"There are: {', '.join(known)}."
        )
    if name == PAGE and into is None:
        raise typer.BadParameter("A page needs a file.", param_hint="--into")
    chosen = suite.chosen_numbers(paper, chosen_file)
    pages = [part for part in paper.pages if part.name == name or (name == ALL and part.in_all)]
    with progress() as tell:
        run = PartRun({}, tell, workers, chosen)
        data = {part.name: _run_page(paper, part, into, run, again=again) for part in pages}
    if name in data:
        answer(output, data[name], lambda console: console.print(pages[0].text(data[name])))
        return
    before = store.PaperResults()
    if into is not None:
        before = store.read_results(store.results_file(into), paper)
        _check_writable(into)
    # What an interrupted run of everything has done already.
    new = kept = (
        before.made_by(fingerprint(paper, chosen))
        if name == ALL and not again
        else store.PaperResults()
    )
    if name == SPARK and not again:
        from trilithon.experiments.spark_diurnal import comparison_made_by  # noqa: PLC0415

        made_by = comparison_made_by()
        kept = store.PaperResults(spark=[run for run in before.spark if run.made_by == made_by])
    with progress() as tell:
        for part in _run(paper, name, workers, chosen, tell, kept, again=again):
            new = new.updated(part, paper)
            if into is not None:
                merged = before.updated(new, paper)
                store.write_results(store.results_file(into), merged, paper)
    if into is not None:
        _write_pages(into, before.updated(new, paper), paper)
    answer(
        output, store.results_to_json(new, paper), lambda console: draw_results(console, new, paper)
    )


def _run_page(
    paper: "Paper", part: "PaperPart", into: Path | None, run: "PartRun", *, again: bool
) -> "Mapping[str, Any]":
    """Runs a part; with --into, goes on where an interrupted run of it was, and writes its page
    beside the paper's.
    """
    from trilithon.experiments.provenance import part_fingerprint  # noqa: PLC0415

    file = None if into is None else _part_file(into, part)
    made_by = None if file is None else part_fingerprint(paper, part, run.chosen)
    results: Mapping[str, Any] = {}
    if file is not None and file.exists() and not again:
        results = _stored_part(file, made_by)
        if not results:
            run.tell(
                f"{file.name} was made by other code or chosen numbers: {part.name} starts anew"
            )
    for done in part.run(replace(run, done=results)):
        results = done
        if file is not None:
            stored = {MADE_BY: made_by, **done}
            file.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
            part.write_page(done, file.with_suffix(".md"))
    return results


def _stored_part(file: Path, made_by: str | None) -> "Mapping[str, Any]":
    """The stored results of a part, if the same code and numbers made them; else none. Those of
    earlier versions do not say what made them.
    """
    stored = json.loads(file.read_text(encoding="utf-8"))
    return stored if stored.pop(MADE_BY, None) == made_by else {}


def _part_file(into: Path, part: "PaperPart") -> Path:
    """The results of a part with a page of its own."""
    return into.with_name(f"{into.stem}-{part.name}.json")


def _parts_of(paper: "Paper") -> list[str]:
    """What a paper has beside its experiments."""
    parts = {MIXES: paper.has_mixes, CHOSEN: paper.sensitivity, SPARK: paper.spark}
    return [
        *(name for name, part in parts.items() if part),
        *(part.name for part in paper.sections),
    ]


def _run(
    paper: "Paper",
    name: str,
    workers: int,
    chosen: "ChosenNumbers",
    tell: "Callable[[str], None]",
    kept: "PaperResults",
    *,
    again: bool,
) -> "Iterator[PaperResults]":
    """What was asked for, each part as soon as it is done; `kept` is not run again."""
    from trilithon.experiments import suite  # noqa: PLC0415
    from trilithon.experiments.mixes import rank  # noqa: PLC0415
    from trilithon.experiments.paper import PartRun  # noqa: PLC0415
    from trilithon.experiments.provenance import fingerprint  # noqa: PLC0415
    from trilithon.experiments.results import PaperResults  # noqa: PLC0415

    made_by = fingerprint(paper, chosen)
    wanted = [
        experiment
        for experiment in paper.experiments
        if name in {ALL, experiment.name} and kept.experiment(experiment.name) is None
    ]
    # Single runs are stored until the results of their experiment are.
    stored = folders.cache() / "runs" / made_by
    if again:
        shutil.rmtree(stored, ignore_errors=True)
    for result in suite.run_experiments(paper, wanted, workers, tell, chosen, stored):
        yield PaperResults([result])
    if name in {MIXES, ALL} and paper.has_mixes:
        for mixes in suite.run_mixes(paper, workers, tell, chosen, kept.mixes):
            yield PaperResults(ranking=rank(mixes), mixes=mixes, mixes_made_by=made_by)
    if name in {CHOSEN, ALL} and paper.sensitivity is not None:
        for moved, unmoved in suite.run_moves(paper, workers, tell, chosen, kept.moved):
            yield PaperResults(moved=moved, unmoved=unmoved, moved_made_by=made_by)
    for part in paper.sections:
        if name == part.name or (name == ALL and part.in_all):
            done = kept.extra.get(part.name, {}).get("data")
            for data in part.run(PartRun(done, tell, workers, chosen)):
                yield PaperResults(extra={part.name: {"made_by": made_by, "data": data}})
    # Its runs are compared with each other: only those of the same code are kept.
    if name == SPARK and paper.spark is not None:
        from trilithon.experiments import spark_diurnal  # noqa: PLC0415

        made_by = spark_diurnal.comparison_made_by()
        for spark in spark_diurnal.run_comparison(paper.spark, tell, made_by, kept.spark):
            yield PaperResults(spark=spark)


def _write_pages(into: Path, results: "PaperResults", paper: "Paper") -> None:
    from trilithon.experiments.details_page import details_page  # noqa: PLC0415
    from trilithon.experiments.page import page  # noqa: PLC0415
    from trilithon.experiments.plots import write_plots  # noqa: PLC0415

    write_plots(results, paper, into.parent)
    stored = {part.name: _part_file(into, part) for part in paper.pages}
    own_pages = {name: file for name, file in stored.items() if file.exists()}
    into.write_text(page(results, paper, into.stem, own_pages), encoding="utf-8")
    for part in paper.pages:
        if (file := own_pages.get(part.name)) is not None:
            part.write_page(json.loads(file.read_text(encoding="utf-8")), file.with_suffix(".md"))
    details = into.with_name(f"{into.stem}-details.md")
    details.write_text(details_page(results, paper, into.stem), encoding="utf-8")


def _check_writable(path: Path) -> None:
    """Hours of running must not end with a file that cannot be written."""
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise FileUnwritable(
            f"{path} cannot be written: {error.strerror}.", "Choose another file with --into."
        ) from error


def draw_results(console: Console, results: "PaperResults", paper: "Paper") -> None:
    from trilithon.experiments.markdown import interval, stated  # noqa: PLC0415
    from trilithon.experiments.verdicts import judged_figures  # noqa: PLC0415

    names = [strategy.name for strategy in paper.strategies]
    for result in results.experiments:
        rows = [
            (
                judged.compared.figure.name,
                stated(judged.compared.figure),
                interval(
                    judged.compared.ours, judged.compared.half_width, judged.compared.figure.unit
                ),
                str(judged.verdict),
            )
            for judged in judged_figures(paper, result)
        ]
        console.print(table(result.experiment.name, ("figure", "paper", "here", ""), rows))
        variants = [
            (
                variant,
                *(
                    _percent(by_strategy[name].average if name in by_strategy else None)
                    for name in names
                ),
                by_strategy[names[0]].actions if names[0] in by_strategy else "–",
            )
            for variant, by_strategy in result.summaries.items()
        ]
        console.print(table(None, ("satisfaction", *names, "actions"), variants))
        console.print()
    if (ranking := results.ranking) is not None:
        # Mixes of an earlier version may lack a strategy.
        ranked = [
            (n, ranking.mean[n], ranking.tenth[n], ranking.rank[n])
            for n in names
            if n in ranking.mean
        ]
        heads = ("satisfaction", "mean", "10th percentile", "rank")
        console.print(table(f"{ranking.mixes} random mixes", heads, ranked))
    _draw_moved(console, results, paper)
    if results.spark:
        heads = ("on Spark", "satisfaction", "worst tenth", "actions")
        runs = [(r.policy, r.satisfaction, r.worst_tenth, r.actions) for r in results.spark]
        console.print(table("two days in twenty minutes", heads, runs))


def _draw_moved(console: Console, results: "PaperResults", paper: "Paper") -> None:
    if not results.moved:
        return
    names = [strategy.name for strategy in paper.cheap_strategies]
    rows: list[tuple[Any, ...]] = [
        (
            run.move.experiment,
            run.move.path or "as chosen",
            run.move.factor,
            *(_percent(run.satisfaction.get(name)) for name in names),
        )
        for run in results.moved
    ]
    console.print(table("chosen numbers", ("run", "number", "×", *names), rows))


def _percent(share: float | None) -> str:
    """A share; a dash where a strategy was not run."""
    return "–" if share is None else f"{100 * share:.1f} %"
