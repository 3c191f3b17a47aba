"""Owns the commands on jobs of the daemon: apply, list, get, delete, pause, resume, history, mode."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.client import Client, client
from trilithon.cli.job_files import jobs_in
from trilithon.cli.output import Format, Output, answer, message_console, table
from trilithon.errors import NotFound
from trilithon.policies.scene import Mode
from trilithon.spec.dump import dump_job

app = typer.Typer(help="Jobs of the daemon.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="tenant/name, or just the name.", show_default=False)]
Wait = Annotated[bool, typer.Option("--wait", help="Return when it has come about.")]
COLUMNS = ("job", "state", "mode", "generation", "standing", "instances", "problem")
WAIT_S = 180.0


def resolve(daemon: Client, name: str) -> str:
    """The whole name of a job that is asked for by its short one."""
    return one_of([one["job"] for one in daemon.get("/jobs")], name)


def one_of(found: Sequence[str], name: str) -> str:
    """Of these names the one that is meant, whole or without its tenant."""
    matching = [one for one in found if name in {one, one.partition("/")[2]}]
    if len(matching) != 1:
        known = ", ".join(found) or "none"
        raise NotFound(f"There is no one job {name!r}.", f"There are: {known}.")
    return matching[0]


@app.command("apply")
def apply(
    files: Annotated[list[Path], typer.Argument(help="Job files.", show_default=False)],
    mode: Annotated[Mode | None, typer.Option("--mode", help="auto, advise or off.")] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Begin with a new checkpoint if it must be.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what it would do to a running job.")
    ] = False,
    wait: Wait = False,
    output: Output = Format.TABLE,
) -> None:
    """Hand in jobs, or new versions of them. What a change means is told before it is done."""
    jobs = [job for file in files for job in jobs_in(file)]
    results: list[dict[str, Any]] = []
    with client() as daemon:
        for job in jobs:
            given = {"spec": dump_job(job), "anew": anew}
            told = daemon.post("/jobs", {**given, "dry_run": True})
            message_console().print(Text(f"{job.id}: {told['told']}", "dim"))
            if dry_run:
                results.append(told)
                continue
            results.append(daemon.post("/jobs", {**given, "mode": mode}))
        ended: dict[str, dict[str, Any] | None] = {}
        if wait and not dry_run:
            states = {"running", "not started", "failed"}
            ended = {job.id: _await(daemon, job.id, states) for job in jobs}
    answer(output, results, lambda console: _tell(results, console))
    wanted = {one["job"]: one.get("generation") for one in results}
    failed = {
        name: "gone." if one is None else f"{one['state']}. {one['problem']}"
        for name, one in ended.items()
        if one is None or one["state"] != "running" or one["generation"] != wanted[name]
    }
    for name, how in failed.items():
        message_console().print(Text(f"{name}: {how}", "red"), soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _tell(results: list[dict[str, Any]], console: Console) -> None:
    for one in results:
        number = f" generation {one['generation']}" if "generation" in one else ""
        console.print(Text(f"{one['job']}{number}: {one['told']}"), soft_wrap=True)


def _await(daemon: Client, name: str, states: set[str]) -> dict[str, Any] | None:
    """How a job stands when it has come to one of these states, with nothing under way; None if it is gone."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = [one for one in daemon.get("/jobs") if one["job"] == name]
        if not found:
            return None
        line: dict[str, Any] = found[0]
        settled = line["state"] == "not started" or not line["in_flight"]
        if (line["state"] in states and settled) or time.monotonic() > deadline:
            return line
        time.sleep(0.3)


@app.command("list")
def list_(output: Output = Format.TABLE) -> None:
    """All jobs, how they fare, and how many instances they have."""
    with client() as daemon:
        found = daemon.get("/jobs")
    rows = [[one[name] for name in COLUMNS] for one in found]
    answer(output, found, lambda console: console.print(table(None, COLUMNS, rows)))


@app.command("get")
def get(name: Name, output: Output = Format.YAML) -> None:
    """Everything about one job: its spec, its allocation, its figures."""
    with client() as daemon:
        found = daemon.get(f"/jobs/{resolve(daemon, name)}")
    rows = [(key, str(value)) for key, value in found.items() if key not in {"spec", "figures"}]
    answer(output, found, lambda console: console.print(table(None, ("", ""), rows)))


@app.command("delete")
def delete(name: Name, wait: Wait = False, output: Output = Format.TABLE) -> None:
    """End a job and delete its checkpoints. Its history stays."""
    _wish(name, "delete", wait, output)


@app.command("pause")
def pause(name: Name, wait: Wait = False, output: Output = Format.TABLE) -> None:
    """End a job for a while; its checkpoint stays."""
    _wish(name, "pause", wait, output)


@app.command("resume")
def resume(name: Name, wait: Wait = False, output: Output = Format.TABLE) -> None:
    """Let a job that pauses go on from where it was."""
    _wish(name, "resume", wait, output)


def _wish(name: str, wish: str, wait: bool, output: Format) -> None:
    until = {"delete": set[str](), "pause": {"paused"}, "resume": {"running", "not started"}}[wish]
    with client() as daemon:
        job = resolve(daemon, name)
        path = f"/jobs/{job}"
        found = daemon.delete(path) if wish == "delete" else daemon.post(f"{path}/{wish}")
        if wait:
            _await(daemon, job, until)
    answer(output, found, lambda console: console.print(f"{job}: {found['state']}", soft_wrap=True))


@app.command("mode")
def mode(
    name: Name,
    mode: Annotated[Mode, typer.Argument(help="auto, advise or off.", show_default=False)],
    output: Output = Format.TABLE,
) -> None:
    """Say how far the controller may go with a job."""
    with client() as daemon:
        job = resolve(daemon, name)
        found = daemon.put(f"/jobs/{job}/mode", {"mode": mode})
    answer(output, found, lambda console: console.print(f"{job}: {found['mode']}", soft_wrap=True))


@app.command("history")
def history(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", help="Of the latest events, so many.")] = 50,
    output: Output = Format.TABLE,
) -> None:
    """The versions of a job, and what happened to it. Also of one that is gone, by its whole name."""
    with client() as daemon:
        job = name if "/" in name else resolve(daemon, name)
        found = daemon.get(f"/jobs/{job}/history", limit=limit)

    def draw(console: Console) -> None:
        versions = [
            (v["generation"], v["accepted"], v["standing"], v["told"]) for v in found["versions"]
        ]
        console.print(table("versions", ("generation", "accepted", "standing", "told"), versions))
        console.print()
        for event in found["events"]:
            console.print(
                Text(f"{event['time']}  {event['kind']}  {event['text']}"), soft_wrap=True
            )

    answer(output, found, draw)
