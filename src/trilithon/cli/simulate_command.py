"""Owns the command `simulate`: a scenario on the simulated cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from trilithon.cli.output import Format, Output, answer, message_console, table
from trilithon.engines.simulated.engine import SimulationMode
from trilithon.scenarios.run import clear, simulate
from trilithon.scenarios.scenario import load_scenario

COLUMNS = (
    "job",
    "satisfaction",
    "p15",
    "at end",
    "utility",
    "of",
    "records/s",
    "latency ms",
    "juice",
    "lag",
    "instances",
    "actions",
)


@contextmanager
def _bar(name: str) -> Iterator[Callable[[float, float], None]]:
    percent = TextColumn("{task.percentage:.0f} %")
    columns = (TextColumn("{task.description}"), BarColumn(), percent, TimeRemainingColumn())
    with Progress(*columns, console=message_console(), transient=True) as progress:
        task = progress.add_task(name, total=1.0)
        yield lambda now_s, length_s: progress.update(task, completed=now_s / length_s)


def simulate_command(
    scenario: Annotated[Path, typer.Argument(help="A scenario file.", show_default=False)],
    into: Annotated[
        Path | None,
        typer.Option("--into", help="The run folder; default: runs/ and the scenario's name."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a run folder.")] = False,
    way: Annotated[
        str | None, typer.Option("--way", help="fluid or events, instead of what the file says.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed, instead of the scenario's.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Record the rounds of the policy here, for `replay`."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a scenario on the simulated cluster. Writes everything that happened into a folder."""
    wanted = load_scenario(scenario, seed)
    if way is not None:
        if way not in set(SimulationMode):
            raise typer.BadParameter(f"{way!r}: write fluid or events.", param_hint="--way")
        wanted = replace(wanted, way=SimulationMode(way))
    if record is not None and wanted.policy is None:
        raise typer.BadParameter("The scenario has no policy.", param_hint="--record")
    folder = into or Path("runs") / wanted.name
    if force:
        clear(folder)
    with _bar(wanted.name) as tell:
        result = simulate(wanted, folder, record=record, tell=tell)
    summary = result.figures.summary()
    data = {
        "scenario": wanted.name,
        "folder": str(folder),
        "satisfaction": result.figures.overall,
        "jobs": summary,
    }
    answer(output, data, lambda console: _draw(data, console))


def _draw(data: dict[str, Any], console: Console) -> None:
    console.print(table(None, COLUMNS, [tuple(job.values()) for job in data["jobs"]]))
    overall = data["satisfaction"]
    verdict = "no job has a threshold" if overall is None else f"SLO satisfaction {overall:.1%}"
    console.print(f"\n{verdict}; all results are in {data['folder']}/", soft_wrap=True)
