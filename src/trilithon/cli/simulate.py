"""Owns the commands of the simulated cluster: run a scenario, learn from a recording."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from trilithon.cli.output import Format, Output, answer, message_console, progress, table
from trilithon.errors import FileExists
from trilithon.recording.files import load_recording

COLUMNS = ("job", "satisfaction", "p15", "at end", "utility", "of", "records/s", "latency ms",
           "juice", "lag", "instances", "actions")  # fmt: skip


@contextmanager
def _bar(name: str) -> Iterator[Callable[[float, float], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=message_console(), transient=True) as progress:
        task = progress.add_task(name, total=1.0)
        yield lambda now_s, length_s: progress.update(task, completed=now_s / length_s)


def simulate_command(
    scenario: Annotated[Path, typer.Argument(help="A scenario file.", show_default=False)],
    into: Annotated[
        Path | None, typer.Option("--into", help="The run folder; else runs/ and the name.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a run folder.")] = False,
    way: Annotated[
        str | None, typer.Option("--way", help="fluid or events, whatever the file says.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Another seed.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a scenario on the simulated cluster and write what happened into a folder."""
    # Compiled loops are slow to import, and most commands do without.
    from dataclasses import replace  # noqa: PLC0415

    from trilithon.engines.simulated.engine import Way  # noqa: PLC0415
    from trilithon.scenarios.run import clear, simulate  # noqa: PLC0415
    from trilithon.scenarios.scenario import load_scenario  # noqa: PLC0415

    wanted = load_scenario(scenario, seed)
    if way is not None:
        if way not in set(Way):
            raise typer.BadParameter(f"{way!r}: write fluid or events.", param_hint="--way")
        wanted = replace(wanted, way=Way(way))
    folder = into or Path("runs") / wanted.name
    if force:
        clear(folder)
    with _bar(wanted.name) as tell:
        result = simulate(wanted, folder, tell=tell)
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
    told = "no job has an intent" if overall is None else f"SLO satisfaction {overall:.1%}"
    console.print(f"\n{told}; everything in {data['folder']}/", soft_wrap=True)


bench = typer.Typer(help="Compare the simulated cluster with a real one.", no_args_is_help=True)


@bench.command("sim-vs-spark")
def sim_vs_spark(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Recorded runs on Spark; without any, three jobs are run.", show_default=False
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", help="Learned before; else each run is learned from itself."),
    ] = None,
    into: Annotated[
        Path, typer.Option("--into", help="Where the runs are recorded, if there are none yet.")
    ] = Path("runs/sim-vs-spark"),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the simulated runs.")] = 0,
    output: Output = Format.TABLE,
) -> None:
    """Run three jobs on Spark, simulate them again and print both side by side."""
    from trilithon.experiments import sim_vs_spark as runs  # noqa: PLC0415
    from trilithon.scenarios.calibration import load_calibration  # noqa: PLC0415
    from trilithon.scenarios.compare import compare  # noqa: PLC0415
    from trilithon.scenarios.scenario import assumed_of, chosen  # noqa: PLC0415

    learned = None if calibration is None else load_calibration(calibration)
    parts: tuple[Any, ...] = ()
    if recordings:
        sources = [(path, learned) for path in recordings]
    else:
        with progress() as tell:
            recorded = runs.record(into, tell)
        sources = [
            (one.recording, learned or load_calibration(one.calibration)) for one in recorded
        ]
        parts = runs.PARTS
    assumed = assumed_of(chosen())
    rows = [
        (str(path), row)
        for path, found in sources
        for row in compare(load_recording(path), assumed, found, seed=seed, parts=parts)
    ]
    data = [
        {"recording": path, "job": row.job, "metric": row.metric, "real": row.real,
         "simulated": row.simulated, "apart": row.apart, "bound": row.bound, "holds": row.holds}
        for path, row in rows
    ]  # fmt: skip
    names = ("job", "metric", "Spark", "simulated", "apart", "bound", "holds")
    shown = [
        (
            row.job,
            row.metric,
            row.real,
            row.simulated,
            None if row.apart is None else f"{row.apart:+.1%}",
            "the same" if row.bound is None else f"±{row.bound:.0%}",
            {True: "yes", False: "NO", None: None}[row.holds],
        )
        for _, row in rows
    ]
    answer(output, data, lambda console: console.print(table(None, names, shown)))


def calibrate_command(
    recording: Annotated[Path, typer.Argument(help="A recorded run.", show_default=False)],
    into: Annotated[Path, typer.Option("--into", help="What to write.")] = Path("calibration.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Learn from a recorded run what operators cost and how the engine behaves."""
    from trilithon.scenarios import calibration  # noqa: PLC0415

    if into.exists() and not force:
        raise FileExists(f"{into} exists.", "Choose another name, or overwrite it with --force.")
    found = calibration.calibrate(load_recording(recording), str(recording))
    calibration.save_calibration(into, found)
    rows = [
        (job, name, p.service_ms, p.service_cv, p.cpu_share, p.selectivity)
        for job, profiles in found.profiles.items()
        for name, p in profiles.items()
    ]
    names = ("job", "operator", "service ms", "variation", "cpu share", "selectivity")
    engine = {name: getattr(found.character, name) for name in found.measured}
    data = {
        "written": str(into),
        "engine": engine,
        "profiles": [dict(zip(names, row, strict=True)) for row in rows],
    }

    def draw(console: Console) -> None:
        console.print(table("Profiles", names, rows))
        console.print(table("Engine", ("number", "measured"), list(engine.items())))
        console.print(f"\nwritten to {into}")

    answer(output, data, draw)
