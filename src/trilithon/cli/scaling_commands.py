"""Owns `cluster scale-out` and `cluster scale-in`: machines on demand, or what they would do."""

import time
from collections import Counter
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.client import Client, client
from trilithon.cli.job_commands import resolve
from trilithon.cli.output import Format, Output, answer, plural, table
from trilithon.errors import Refused

Machines = Annotated[int, typer.Option("--machines", min=1, help="How many machines.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print ranking, projected throughput and plan; change nothing."),
]
Wait = Annotated[
    float, typer.Option("--wait", min=0, help="Seconds to wait for the end of the request.")
]
WAIT_S: Final = 0.0
_POLL_S: Final = 0.5


def scale_out(
    machines: Machines,
    job: Annotated[
        str | None, typer.Option("--job", help="Use the machines for this job alone.")
    ] = None,
    dry_run: DryRun = False,
    wait: Wait = WAIT_S,
    output: Output = Format.TABLE,
) -> None:
    """Add machines and give their instances to the operators that need them most."""
    with client() as daemon:
        name = None if job is None else job if "/" in job else resolve(daemon, job)
        body = {"machines": machines, "job": name, "dry_run": dry_run}
        _scale(daemon, "/cluster/scale-out", body, wait, output)


def scale_in(
    machines: Annotated[
        int | None,
        typer.Option("--machines", min=1, help="How many machines; the policy chooses which."),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--machine", help="A machine to remove, by its name; may be repeated."),
    ] = None,
    dry_run: DryRun = False,
    wait: Wait = WAIT_S,
    output: Output = Format.TABLE,
) -> None:
    """Remove machines after moving their instances: those that throughput needs least, or those
    that are named.
    """
    if machines is None and not names:
        raise typer.BadParameter(
            "Write how many machines to remove (--machines N), or which (--machine NAME).",
            param_hint="--machines / --machine",
        )
    with client() as daemon:
        body: dict[str, Any] = {"machines": machines, "dry_run": dry_run}
        if names:
            body["machine_names"] = names
        _scale(daemon, "/cluster/scale-in", body, wait, output)


def _scale(daemon: Client, path: str, body: dict[str, Any], wait_s: float, output: Format) -> None:
    data = daemon.post(path, body)
    if body["dry_run"]:
        answer(output, data, lambda console: _draw_plan(data, console))
        return
    row = _ended(daemon, data["request"], wait_s)
    if row is not None:
        if not row["done"]:
            raise Refused("NOT_CARRIED_OUT", f"{row['request']}: {row['told']}", "")
        data = row
    answer(output, data, lambda console: console.print(Text(f"{data['request']}: {data['told']}")))


def _ended(daemon: Client, request: str, wait_s: float) -> dict[str, Any] | None:
    deadline = time.monotonic() + wait_s
    while wait_s:
        for row in daemon.get("/cluster/requests", limit=100):
            if row["request"] == request and row["done"] is not None:
                return dict(row)
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_S)
    return None


def _draw_plan(data: dict[str, Any], console: Console) -> None:
    if data["hindrance"] is not None:
        line = f"Not now: {data['hindrance']['code']} {data['hindrance']['sentence']}"
        console.print(Text(line), soft_wrap=True)
        return
    if data["request"] == "scale_in":
        heads: tuple[str, ...] = ("machine", "ETPSum", "instances")
        rows: list[tuple[Any, ...]] = [
            (r["machine"], f"{r['etp_sum']:.3f}", r["instances"]) for r in data["ranking"]
        ]
    else:
        heads = (
            *("job", "share of its maximum", "operator", "congested", "ETP", "input/s"),
            *("could take/s", "instances"),
        )
        rows = [
            (
                r["job"],
                _percent(r["share_of_own_maximum"]),
                r["operator"],
                "yes" if r["congested"] else "no",
                _percent(r["etp"]),
                _rate(r["input_per_s"]),
                _rate(r["could_take_per_s"]),
                f"{r['instances']} of {r['most']}",
            )
            for r in data["ranking"]
        ]
    console.print(table("ranking before the first step", heads, rows))
    steps = [
        (i, step["subject"], _why(step), _rate(step["projected_throughput"]))
        for i, step in enumerate(data["steps"], 1)
    ]
    heads = ("", "choice", "why", "projected throughput/s")
    console.print(table("plan, step by step", heads, steps))
    if any(step["instead_of"] for step in data["steps"]):
        console.print(Text(_exchange(data)), soft_wrap=True)
    console.print(table("instances", ("operator", "instances", "machines"), _changes(data)))
    if data["machines_to_remove"]:
        moves = [
            (f"{move['job']} {move['operator']}", move["instances"], move["from"], move["to"])
            for move in data["moves"]
        ]
        console.print(table("moves", ("operator", "instances", "from", "to"), moves))
    console.print(Text(_sentence(data)), soft_wrap=True)
    for note in data["notes"]:
        console.print(Text(note), soft_wrap=True)
    if data["carried_out_by"] is None:
        console.print("No policy of this daemon carries it out: add stela to `policy`.")
    console.print("Nothing was changed.")


def _why(step: dict[str, Any]) -> str:
    instead = f", instead of {step['instead_of']}" if step["instead_of"] else ""
    return f"{step['why']}{instead}"


def _exchange(data: dict[str, Any]) -> str:
    before, then = data["projected_before_exchange_per_s"], data["projected_throughput_per_s"]
    gain = f" ({100 * (then / before - 1):+.1f} %)" if before else ""
    return (
        f"By the ranking alone, {_rate(before)}/s would be projected; with the exchanged steps it "
        f"is {_rate(then)}/s{gain}."
    )


def _changes(data: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Each operator that changes: how many instances, and how many of them on which machine."""
    rows = []
    for job, by_operator in data["placement"].items():
        for name, machines in by_operator.items():
            before, then = data["parallelism"].get(job, {}).get(name, (len(machines),) * 2)
            counts = Counter("anywhere" if place is None else str(place) for place in machines)
            where = ", ".join(f"{count} on {place}" for place, count in sorted(counts.items()))
            rows.append(
                (f"{job} {name}", f"{before} → {then}" if then != before else str(then), where)
            )
    return rows


def _sentence(data: dict[str, Any]) -> str:
    now, then = data["throughput_per_s"], data["projected_throughput_per_s"]
    change = f" ({100 * (then / now - 1):+.1f} %)" if now and then is not None else ""
    machines = (
        f"remove {', '.join(data['machines_to_remove'])}"
        if data["machines_to_remove"]
        else f"add {plural(data['machines_to_add'], 'machine')}"
    )
    return f"Plan: {machines}. Throughput {_rate(now)}/s, projected {_rate(then)}/s{change}."


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"
