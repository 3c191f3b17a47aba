"""Owns the commands `cluster …`: the state of the whole cluster."""

from collections import Counter
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.client import client, is_local
from trilithon.cli.output import Format, Output, answer, plural, table
from trilithon.cli.scaling_commands import scale_in, scale_out
from trilithon.cli.standalone_commands import draw_workers, standalone_status, start, stop
from trilithon.errors import DaemonUnreachable

app = typer.Typer(help="The cluster that the daemon controls.", no_args_is_help=True)
app.command("start")(start)
app.command("stop")(stop)
app.command("scale-out")(scale_out)
app.command("scale-in")(scale_in)


@app.command("status")
def status(output: Output = Format.TABLE) -> None:
    """Print slots, machines, tenants with their quotas, and what the engine can do. A standalone
    cluster that `cluster start` started is listed with its workers, also without a daemon.
    """
    # Of a daemon elsewhere it would be another cluster.
    standalone = standalone_status() if is_local() else None
    try:
        with client() as daemon:
            cluster = daemon.get("/cluster")
    except DaemonUnreachable:
        if standalone is None:
            raise
        answer(
            output, {"standalone": standalone}, lambda console: draw_workers(standalone, console)
        )
        return
    answer(output, {**cluster, "standalone": standalone}, lambda console: _draw(cluster, console))
    if output is Format.TABLE and standalone is not None:
        answer(output, standalone, lambda console: draw_workers(standalone, console))


def _draw(cluster: dict[str, Any], console: Console) -> None:
    console.print(headline(cluster))
    machines = [
        (
            m["name"],
            *(m[key] for key in ("cores", "slots", "load")),
            *_memory(m),
            len(m["instances"]),
        )
        for m in cluster["machine_details"]
    ]
    heads = ("machine", "cores", "slots", "load", "memory MB", "in use MB", "instances")
    console.print(table("machines", heads, machines))
    if applications := cluster["applications"]:
        rows = [(a["application"], a["state"], len(a["jobs"])) for a in applications]
        console.print(table("applications", ("application", "state", "jobs"), rows))
    tenants = [[t["tenant"], t["jobs"], t["slots_used"], t["quota"]] for t in cluster["tenants"]]
    console.print(table("tenants", ("tenant", "jobs", "slots", "quota"), tenants))
    console.print(table("abilities", ("ability", "how"), cluster["abilities"].items()))


def _memory(machine: dict[str, Any]) -> tuple[int | None, int | None]:
    """The memory of a machine and what is used of it, in MB."""
    of, used = machine["memory_bytes"], machine["memory_used_bytes"]
    return None if of is None else round(of / 2**20), None if used is None else round(used / 2**20)


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
        f"{plural(len(cluster['machines']), 'machine')}, {_applications(cluster)}"
        f"policy {cluster['policy']}, round {cluster['round']}"
    )
    problem = f"  {cluster['problem']}" if cluster["problem"] else ""
    return Text.assemble(
        state, (problem, "yellow" if cluster["status"] in {"starting", "waiting"} else "red")
    )


def _applications(cluster: dict[str, Any]) -> str:
    """How many applications there are, and those that do not run; empty if there is one for all."""
    states = Counter(application["state"] for application in cluster.get("applications", ()))
    if not states:
        return ""
    others = [f"{count} {state}" for state, count in sorted(states.items()) if state != "running"]
    return f"{plural(states.total(), 'application')}{', '.join(['', *others])}, "
