"""Owns the commands: what each takes, what it prints, how it ends."""

import io
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

import trilithon
from trilithon.cli import broker, cluster, experiment
from trilithon.cli import job as job_commands
from trilithon.cli.advice import advice, draw_advice
from trilithon.cli.cluster import top_command
from trilithon.cli.explain import explain_command, parameters, replay_command
from trilithon.cli.jobs import jobs_in
from trilithon.cli.load import load_command
from trilithon.cli.output import Format, Output, answer, complain, draw_problems, message_console
from trilithon.cli.plan import draw_plan, plan
from trilithon.cli.run import rescale_command, run_command
from trilithon.cli.serve import host_command, serve_command
from trilithon.cli.simulate import bench, calibrate_command, simulate_command
from trilithon.control.encoding import decision_to_json
from trilithon.control.replay import replay
from trilithon.errors import (
    FileExists,
    FileUnwritable,
    InvalidJob,
    InvalidRecording,
    TrilithonError,
)
from trilithon.policies.registry import policy as known_policy
from trilithon.recording.files import load_recording

app = typer.Typer(
    name="trilithon",
    help="Intent-driven stream processing on Apache Spark.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(broker.app, name="broker")
app.add_typer(bench, name="bench")
app.add_typer(experiment.app, name="experiment")
app.command("run")(run_command)
app.command("rescale")(rescale_command)
app.command("load")(load_command)
app.command("simulate")(simulate_command)
app.command("calibrate")(calibrate_command)
app.command("serve")(serve_command)
app.command("host")(host_command)
app.add_typer(job_commands.app, name="job")
app.add_typer(cluster.app, name="cluster")
app.command("explain")(explain_command)
app.command("replay")(replay_command)
app.command("top")(top_command)
Files = Annotated[
    list[Path], typer.Argument(help="Job files: YAML, or Python.", show_default=False)
]


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"trilithon {trilithon.__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Intent-driven stream processing on Apache Spark."""
    del version


@app.command("init")
def init_command(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("job.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Write an example job: YAML, or Python if the name ends in .py."""
    template = "job.py.txt" if path.suffix == ".py" else "job.yaml"
    content = (resources.files("trilithon.cli") / "templates" / template).read_text(
        encoding="utf-8"
    )
    if path.exists() and not force:
        raise FileExists(f"{path} exists.", "Choose another name, or overwrite it with --force.")
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise FileUnwritable(
            f"{path} cannot be written: {error.strerror}.", "Choose another place."
        ) from error
    answer(output, {"written": str(path)}, lambda console: console.print(str(path), soft_wrap=True))
    message_console().print(
        Text(f"Next: trilithon validate {path}, then trilithon plan {path}", "dim")
    )


@app.command()
def validate(files: Files, output: Output = Format.TABLE) -> None:
    """Check job files and tell every problem, with its line and how to mend it."""
    results, worst = [], 0
    for path in files:
        try:
            results += [_valid(path, job.id) for job in jobs_in(path)]
        except InvalidJob as error:
            results.append(_invalid(path, [asdict(p) for p in error.problems], error))
            worst = max(worst, error.exit_code)
        except TrilithonError as error:
            results.append(_invalid(path, [], error))
            worst = max(worst, error.exit_code)
    shown = [{k: v for k, v in result.items() if k != "error"} for result in results]
    answer(output, shown, lambda console: _draw_validation(results, console))
    raise typer.Exit(worst)


def _valid(path: Path, job: str) -> dict[str, Any]:
    return {"file": str(path), "job": job, "valid": True, "problems": []}


def _invalid(path: Path, problems: list[dict[str, Any]], error: TrilithonError) -> dict[str, Any]:
    return {"file": str(path), "valid": False, "code": error.code, "message": error.message,
            "problems": problems, "error": error}  # fmt: skip


def _draw_validation(results: Sequence[dict[str, Any]], console: Console) -> None:
    for result in results:
        if result["valid"]:
            console.print(
                Text.assemble(("ok  ", "green"), result["file"], (f"  {result['job']}", "dim"))
            )
            continue
        error = result["error"]
        told = (
            error.message
            if result["file"] in error.message
            else f"{result['file']}: {error.message}"
        )
        console.print(
            Text.assemble(("bad ", "red"), told, (f" {error.hint}", "dim")), soft_wrap=True
        )
        draw_problems(error.problems if isinstance(error, InvalidJob) else (), console)


@app.command("plan")
def plan_command(
    file: Annotated[Path, typer.Argument(help="A job file.", show_default=False)],
    output: Output = Format.TABLE,
) -> None:
    """Draw a job and tell what it needs: instances at the start, and the tasks it holds."""
    jobs = jobs_in(file)

    def draw(console: Console) -> None:
        for job in jobs:
            draw_plan(job, console)

    plans = [plan(job) for job in jobs]
    answer(output, plans[0] if len(plans) == 1 else plans, draw)


@app.command()
def advise(
    recording: Annotated[Path, typer.Argument(help="Parquet or JSON.", show_default=False)],
    policy: Annotated[
        str | None, typer.Option("--policy", help="What this policy would do, and why.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Print every measure of a recorded snapshot or series."""
    if policy is not None:
        _advise_by(recording, policy, output)
        return
    series = load_recording(recording)
    if series.window() is None:
        raise InvalidRecording(
            f"{recording} holds one snapshot, whose counters run since a time that it does not tell.",
            "Add `since_s` to it, or give a series.",
        )
    data = advice(series)
    answer(output, data, lambda console: draw_advice(data, console))


def _advise_by(recording: Path, name: str, output: Format) -> None:
    """What a policy would decide at the end of a recording."""
    *_, last = replay(recording, known_policy(name, parameters(None)))
    data = [decision_to_json(decision) for decision in last.decisions]

    def draw(console: Console) -> None:
        if not data:
            console.print(f"{name} would change nothing.")
        for one in data:
            where = one["job"] or "cluster"
            console.print(Text(f"{where}  {one['reason']}  {one['sentence']}"), soft_wrap=True)

    answer(output, data, draw)


def main() -> None:
    """Runs a command; an error becomes a message on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a sign gets something in its place, not a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
        sys.stdout.flush()
    except TrilithonError as error:
        complain(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        _give_up_stdout()
        sys.exit(1)
    except OSError as error:
        _give_up_stdout()
        message_console().print(f"error: the answer cannot be written: {error.strerror}")
        sys.exit(1)


def _give_up_stdout() -> None:
    """What is still in its buffer cannot be written: it must not be tried again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
