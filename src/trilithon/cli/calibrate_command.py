"""Owns the command `calibrate`: what a recorded run tells of operators and of the engine."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trilithon.cli.output import Format, Output, answer, table
from trilithon.errors import FileExists
from trilithon.recording.files import load_recording
from trilithon.scenarios import calibration


def calibrate_command(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            help="A recorded run. Further ones, of runs with more or fewer tasks, tell what a task "
            "costs.",
            show_default=False,
        ),
    ],
    into: Annotated[Path, typer.Option("--into", help="The file to write.")] = Path(
        "calibration.yaml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Learn from a recorded run what operators cost. How the engine behaves is learned, too."""
    if into.exists() and not force:
        raise FileExists(f"{into} exists.", "Choose another name, or overwrite it with --force.")
    first, *others = recordings
    found = calibration.calibrate(
        load_recording(first), str(first), others=[load_recording(other) for other in others]
    )
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
