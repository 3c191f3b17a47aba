"""Owns the commands on the whole cluster: `cluster status` and `cluster crunch`."""

from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.client import client
from trilithon.cli.output import Format, Output, answer, table

app = typer.Typer(help="The cluster that the daemon controls.", no_args_is_help=True)


@app.command("status")
def status(output: Output = Format.TABLE) -> None:
    """Slots, machines, tenants with their quotas, and what the engine can do."""
    with client() as daemon:
        found = daemon.get("/cluster")
    answer(output, found, lambda console: _draw(found, console))


def _draw(found: dict[str, Any], console: Console) -> None:
    console.print(headline(found))
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


def headline(found: dict[str, Any]) -> Text:
    slots = "" if found["slots"] is None else f" of {found['slots']}"
    told = (
        f"{found['running']} of {found['jobs']} jobs run, {found['slots_used']}{slots} slots in use, "
        f"{len(found['machines'])} machines, policy {found['policy']}, round {found['round']}"
    )
    problem = f"  {found['problem']}" if found["problem"] else ""
    return Text.assemble(told, (problem, "red"))
