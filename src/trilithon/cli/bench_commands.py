"""Owns the commands `bench`: the simulated cluster beside a real one."""

from pathlib import Path
from typing import Annotated, Any

import typer

from trilithon.cli.output import Format, Output, answer, progress, table
from trilithon.experiments import sim_vs_spark as runs
from trilithon.recording.files import load_recording
from trilithon.scenarios.calibration import load_calibration
from trilithon.scenarios.chosen import assumed_costs, load_chosen
from trilithon.scenarios.compare import compare

app = typer.Typer(help="Compare the simulated cluster with a real one.", no_args_is_help=True)


@app.command("sim-vs-spark")
def sim_vs_spark(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Recorded runs on Spark; default: three jobs are run.", show_default=False
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration", help="A calibration file; default: each run is calibrated from itself."
        ),
    ] = None,
    into: Annotated[Path, typer.Option("--into", help="Where new runs are recorded.")] = Path(
        "runs/sim-vs-spark"
    ),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the simulated runs.")] = 0,
    output: Output = Format.TABLE,
) -> None:
    """Run three jobs on Spark, simulate them again and print both side by side."""
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
    assumed = assumed_costs(load_chosen())
    rows = [
        (str(path), row)
        for path, found in sources
        for row in compare(load_recording(path), assumed, found, seed=seed, parts=parts)
    ]
    data = [
        {
            "recording": path,
            "job": row.job,
            "metric": row.metric,
            "real": row.real,
            "simulated": row.simulated,
            "apart": row.apart,
            "bound": row.bound,
            "holds": row.holds,
        }
        for path, row in rows
    ]
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
