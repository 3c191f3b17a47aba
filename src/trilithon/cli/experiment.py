"""Owns the papers' experiments on the command line: run them, print ours beside theirs, write the page."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from trilithon.cli.output import Format, Output, answer, progress, table
from trilithon.errors import FileUnwritable, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trilithon.experiments.henge.results import Whole

app = typer.Typer(help="The papers' experiments.", no_args_is_help=True)
MIXES: Final = "mixes"
CHOSEN: Final = "chosen"
SPARK: Final = "spark-diurnal"
ALL: Final = "all"
PAGE: Final = "page"


@app.command("henge")
def henge_command(
    name: Annotated[
        str,
        typer.Argument(
            help="An experiment, mixes, chosen, spark-diurnal, all, or page.", show_default=False
        ),
    ],
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            help="The page of results, with its numbers beside it as JSON: what is run takes the place of what "
            "was there, as soon as it is done, and `page` only writes it again.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes side by side.", min=1)] = max(
        1, os.cpu_count() or 1
    ),
    chosen: Annotated[
        Path | None, typer.Option("--chosen", help="Another file of chosen numbers.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Run Henge's experiments on the simulated cluster; `spark-diurnal` runs on Spark, and is not part of `all`: it
    takes an hour of an otherwise idle machine.
    """
    # Compiled loops are slow to import, and most commands do without.
    from trilithon.experiments.henge import results, suite  # noqa: PLC0415
    from trilithon.experiments.henge.catalogue import EXPERIMENTS  # noqa: PLC0415
    from trilithon.experiments.henge.page import page  # noqa: PLC0415

    known = [*EXPERIMENTS, MIXES, CHOSEN, SPARK, ALL, PAGE]
    if name not in known:
        raise NotFound(f"There is no experiment {name!r}.", f"There are: {', '.join(known)}.")
    if name == PAGE and into is None:
        raise typer.BadParameter("A page needs a place.", param_hint="--into")
    before = results.Whole()
    if into is not None:
        before = results.read(results.beside(into))
        _writable(into)
    suite.check(chosen)
    whole = results.Whole()
    with progress() as tell:
        for part in _parts(name, workers, chosen, tell):
            whole = whole.renewed(part)
            if into is not None:
                results.write(results.beside(into), before.renewed(whole))
    if into is not None:
        into.write_text(page(before.renewed(whole)), encoding="utf-8")
    answer(output, results.as_data(whole), lambda console: _draw(console, whole))


def _parts(
    name: str, workers: int, chosen: Path | None, tell: "Callable[[str], None]"
) -> "Iterator[Whole]":
    """What was asked for, each part as soon as it is there."""
    from trilithon.experiments.henge import spark_diurnal, suite  # noqa: PLC0415
    from trilithon.experiments.henge.catalogue import EXPERIMENTS  # noqa: PLC0415
    from trilithon.experiments.henge.results import Whole  # noqa: PLC0415

    names = list(EXPERIMENTS) if name == ALL else [name] if name in EXPERIMENTS else []
    for outcome in suite.run_all(names, workers, tell, chosen):
        yield Whole([outcome])
    if name in {MIXES, ALL}:
        yield Whole(ranking=suite.run_mixes(workers, tell, chosen))
    if name in {CHOSEN, ALL}:
        changes, unmoved = suite.run_moved(workers, tell, chosen)
        yield Whole(moved=changes, unmoved=unmoved)
    # Its three runs are compared with each other, so they stand or fall together.
    if name == SPARK:
        yield Whole(spark=spark_diurnal.run(tell))


def _writable(path: Path) -> None:
    """Hours of running must not end in a file that cannot be written."""
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise FileUnwritable(
            f"{path} cannot be written: {error.strerror}.", "Choose another place."
        ) from error


def _draw(console: Console, whole: "Whole") -> None:
    from trilithon.experiments.henge.page import number, verdict  # noqa: PLC0415
    from trilithon.experiments.runs import Steering  # noqa: PLC0415

    for one in whole.outcomes:
        rows = [
            (b.figure.what, number(b.figure.value, b.figure.unit), number(b.ours, b.figure.unit),
             verdict(b))
            for b in one.figures
        ]  # fmt: skip
        console.print(table(one.experiment.name, ("figure", "paper", "here", ""), rows))
        ways = [
            (
                variant,
                *(f"{100 * found[s].average:.1f} %" for s in Steering),
                found[Steering.HENGE].actions,
            )
            for variant, found in one.ways.items()
        ]
        heads = ("satisfaction", *(str(s) for s in Steering), "actions")
        console.print(table(None, heads, ways))
        console.print()
    if (ranking := whole.ranking) is not None:
        mixed = [(str(s), ranking.mean[s], ranking.tenth[s], ranking.rank[s]) for s in Steering]
        heads = ("satisfaction", "mean", "10th percentile", "rank")
        console.print(table(f"{ranking.mixes} random mixes", heads, mixed))
    if whole.moved:
        from trilithon.experiments.henge.moved import WAYS  # noqa: PLC0415

        moved = [
            (one.task.experiment, one.task.path or "as chosen", one.task.factor,
             *(f"{100 * one.satisfaction[way]:.1f} %" for way in WAYS))
            for one in whole.moved
        ]  # fmt: skip
        console.print(table("chosen numbers", ("run", "number", "×", *map(str, WAYS)), moved))
    if whole.spark:
        heads = ("on Spark", "satisfaction", "worst tenth", "actions")
        lived = [
            (one.policy, one.satisfaction, one.worst_tenth, one.actions) for one in whole.spark
        ]
        console.print(table("two days in twenty minutes", heads, lived))
