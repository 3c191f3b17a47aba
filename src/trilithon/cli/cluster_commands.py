"""Owns the commands `cluster …`: the state of the whole cluster."""

from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.client import client
from trilithon.cli.output import Format, Output, answer, plural, table
from trilithon.cli.scaling_commands import scale_in, scale_out

app = typer.Typer(help="The cluster that the daemon controls.", no_args_is_help=True)
app.command("scale-out")(scale_out)
app.command("scale-in")(scale_in)


@app.command("status")
def status(output: Output = Format.TABLE) -> None:
    """Print slots, machines, tenants with their quotas, and what the engine can do."""
    with client() as daemon:
        cluster = daemon.get("/cluster")
    answer(output, cluster, lambda console: _draw(cluster, console))


def _draw(cluster: dict[str, Any], console: Console) -> None:
    console.print(headline(cluster))
    tenants = [[t["tenant"], t["jobs"], t["slots_used"], t["quota"]] for t in cluster["tenants"]]
    console.print(table("tenants", ("tenant", "jobs", "slots", "quota"), tenants))
    console.print(table("abilities", ("ability", "how"), cluster["abilities"].items()))


@app.command("crunch")
def crunch(output: Output = Format.TABLE) -> None:
    """Print whether the cluster is large enough for all intents, and what each job needs."""
    with client() as daemon:
        report = daemon.get("/cluster/crunch")
    answer(output, report, lambda console: _draw_crunch(report, console))


def _draw_crunch(report: dict[str, Any], console: Console) -> None:
    console.print(Text(_verdict(report)), soft_wrap=True)
    for key, meaning in (
        ("impossible", "intents that no number of instances can meet"),
        ("hungry", "overly hungry: often scaled up and still below the intent"),
        ("unknown", "too few measurements to say"),
    ):
        if report[key]:
            console.print(Text(f"{meaning}: {', '.join(report[key])}"), soft_wrap=True)
    rows = [
        (
            *(job[key] for key in ("job", "has", "needs", "latency_ms")),
            " ".join(f"{name}×{count}" for name, count in (job["instances"] or {}).items()),
        )
        for job in report["jobs"]
    ]
    console.print()
    console.print(table(None, ("job", "has", "needs", "expected latency ms", "instances"), rows))


def _verdict(report: dict[str, Any]) -> str:
    if report["feasible"] is None:
        return "Too few measurements to say whether all intents can be met."
    if report["feasible"]:
        of = "" if report["slots"] is None else f" of {report['slots']}"
        return f"All intents can be met, with {report['slots_needed']}{of} slots."
    why = []
    if report["slots_missing"]:
        missing = report["slots_missing"]
        why.append(f"{plural(missing, 'slot')} {'is' if missing == 1 else 'are'} missing")
    cores, needed = report["cores"], report["cores_needed"]
    if cores is not None and needed is not None and needed > cores:
        why.append(f"{needed:.1f} cores are needed of {cores:g}")
    if report["impossible"]:
        why.append("some intents cannot be met by more instances")
    return f"Not all intents can be met, however the cluster is divided: {', '.join(why)}."


def headline(cluster: dict[str, Any]) -> Text:
    slots = "" if cluster["slots"] is None else f" of {cluster['slots']}"
    others = "".join(
        f"{cluster[state]} {state}, " for state in ("degraded", "failed") if cluster[state]
    )
    state = (
        f"{cluster['running']} of {plural(cluster['jobs'], 'job')} running, {others}"
        f"{cluster['slots_used']}{slots} slots in use, "
        f"{plural(len(cluster['machines']), 'machine')}, policy {cluster['policy']}, "
        f"round {cluster['round']}"
    )
    problem = f"  {cluster['problem']}" if cluster["problem"] else ""
    return Text.assemble(state, (problem, "yellow" if cluster["status"] == "starting" else "red"))
