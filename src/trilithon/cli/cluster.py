"""Owns looking at the whole cluster: `cluster status`, and `top`, which stays on the screen."""

import contextlib
import time
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from trilithon.cli import live
from trilithon.cli.client import Client, client
from trilithon.cli.output import Format, Output, answer, data_console, table

app = typer.Typer(help="The cluster that the daemon looks after.", no_args_is_help=True)


@app.command("status")
def status(output: Output = Format.TABLE) -> None:
    """Slots, machines, tenants with their quotas, and what the engine can do."""
    with client() as daemon:
        found = daemon.get("/cluster")
    answer(output, found, lambda console: _draw(found, console))


def _draw(found: dict[str, Any], console: Console) -> None:
    console.print(_headline(found))
    tenants = [[t["tenant"], t["jobs"], t["slots_used"], t["quota"]] for t in found["tenants"]]
    console.print(table("tenants", ("tenant", "jobs", "slots", "quota"), tenants))
    console.print(table("abilities", ("ability", "how"), found["abilities"].items()))


@app.command("crunch")
def crunch(output: Output = Format.TABLE) -> None:
    """Whether the cluster is large enough for all intents, and who needs how much."""
    with client() as daemon:
        found = daemon.get("/cluster/crunch")
    answer(output, found, lambda console: _draw_crunch(found, console))


def _draw_crunch(found: dict[str, Any], console: Console) -> None:
    console.print(Text(_verdict(found)), soft_wrap=True)
    for key, told in (
        ("impossible", "promises that no number of instances keeps"),
        ("hungry", "overly hungry: often given more, and still short of the intent"),
        ("unknown", "too few numbers to tell"),
    ):
        if found[key]:
            console.print(Text(f"{told}: {', '.join(found[key])}"), soft_wrap=True)
    rows = [
        (
            one["job"], one["has"], one["needs"], one["latency_ms"],
            " ".join(f"{name}×{count}" for name, count in (one["instances"] or {}).items()),
        )
        for one in found["jobs"]
    ]  # fmt: skip
    console.print()
    console.print(table(None, ("job", "has", "needs", "latency ms then", "instances"), rows))


def _verdict(found: dict[str, Any]) -> str:
    if found["feasible"] is None:
        return "It cannot be told whether all intents can be met."
    if found["feasible"]:
        of = "" if found["slots"] is None else f" of {found['slots']}"
        return f"All intents can be met, with {found['slots_needed']}{of} slots."
    why = []
    if found["slots_missing"]:
        why.append(f"{found['slots_missing']} slots are missing")
    cores, needed = found["cores"], found["cores_needed"]
    if cores is not None and needed is not None and needed > cores:
        why.append(f"{needed:.1f} cores are needed of {cores:g}")
    if found["impossible"]:
        why.append("some promises cannot be kept by instances alone")
    return f"Not all intents can be met, however the cluster is divided: {', '.join(why)}."


def _headline(found: dict[str, Any]) -> Text:
    slots = "" if found["slots"] is None else f" of {found['slots']}"
    told = (
        f"{found['running']} of {found['jobs']} jobs run, {found['slots_used']}{slots} slots in use, "
        f"{len(found['machines'])} machines, policy {found['policy']}, round {found['round']}"
    )
    problem = f"  {found['problem']}" if found["problem"] else ""
    return Text.assemble(told, (problem, "red"))


def top_command(
    every: Annotated[float, typer.Option("--every", help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
) -> None:
    """Show live what jobs do and what the controller decides, until Ctrl-C."""
    with client() as daemon:
        if once:
            data_console().print(_screen(daemon))
            return
        with contextlib.suppress(KeyboardInterrupt), Live(auto_refresh=False, screen=True) as shown:
            while True:
                shown.update(_screen(daemon), refresh=True)
                time.sleep(every)


def _screen(daemon: Client) -> RenderableType:
    decided = daemon.get("/decisions", limit=8)
    lines = [
        Text.assemble(
            (one["time"][11:], "dim"), "  ", (one["job"] or "cluster", "bold"), "  ", one["sentences"][0]
        )
        for one in decided
    ]  # fmt: skip
    return Group(
        _headline(daemon.get("/cluster")), Text(), live.draw(daemon.get("/figures")), Text(), *lines
    )
