"""Owns the commands `job …` on the jobs of the daemon."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.client import Client, client
from trilithon.cli.job_rows import job_row, job_rows
from trilithon.cli.live import state_text
from trilithon.cli.output import Format, Listing, Output, answer, message_console
from trilithon.cli.record_text import record_text, value_text
from trilithon.errors import InvalidJob, NotFound
from trilithon.model.mode import Mode

app = typer.Typer(help="Jobs of the daemon.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="tenant/name, or the name alone.", show_default=False)]
Wait = Annotated[bool, typer.Option("--wait", help="Return when the change has taken effect.")]
NewMode = Annotated[Mode | None, typer.Option("--mode", help="auto, advise or off.")]
Anew = Annotated[
    bool, typer.Option("--anew", help="Start from a new checkpoint if the old one cannot be used.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only print what would happen to a running job.")
]
COLUMNS = ("job", "state", "mode", "generation", "standing", "instances")
WAIT_S = 180.0
# A daemon that was started a moment ago answers after so long.
STARTING_S = 3.0
# By the daemon's status, as long as it has no engine.
NOT_READY = {
    "starting": "The engine is starting; jobs start after it.",
    "waiting": "The daemon waits for its engine host; jobs start when it answers.",
}


def resolve(daemon: Client, name: str) -> str:
    """The full name of a job of the daemon that is given with or without its tenant."""
    return full_name([row["metadata"]["id"] for row in daemon.get("/jobs")], name)


def full_name(jobs: Sequence[str], name: str) -> str:
    """The one of these jobs that has this name, with or without its tenant."""
    matching = [job for job in jobs if name in {job, job.partition("/")[2]}]
    if len(matching) != 1:
        known = ", ".join(jobs) or "none"
        raise NotFound(f"No job, or more than one, matches {name!r}.", f"Jobs: {known}.")
    return matching[0]


@app.command("apply")
def apply(
    files: Annotated[list[Path], typer.Argument(help="Job files.", show_default=False)],
    mode: NewMode = None,
    anew: Anew = False,
    dry_run: DryRun = False,
    wait: Wait = False,
    output: Output = Format.TABLE,
) -> None:
    """Submit jobs, or new versions of them. Prints what a change means before it is made."""
    # The parser of expressions is slow to import, and the other commands here do without.
    from trilithon.cli.job_files import jobs_in  # noqa: PLC0415
    from trilithon.spec.dump import dump_job  # noqa: PLC0415

    loaded = [job for file in files for job in jobs_in(file)]
    jobs = [job.job for job in loaded]
    requests = [(f"/jobs/{job.id}", {"spec": dump_job(job), "anew": anew}) for job in jobs]
    results: list[dict[str, Any]] = []
    with client(STARTING_S) as daemon:
        # All of them first: no job is submitted if one of them is refused.
        for job, (path, body) in zip(loaded, requests, strict=True):
            try:
                results.append(daemon.put(path, body, dry_run=True))
            except InvalidJob as error:
                raise job.located(error) from None
        if not dry_run:
            if (notice := NOT_READY.get(daemon.get("/health")["status"])) is not None:
                message_console().print(notice, style="dim")
            if wait:
                _announce(results)
            results = [daemon.put(path, {**body, "mode": mode}) for path, body in requests]
        settled: dict[str, dict[str, Any] | None] = {}
        if wait and not dry_run:
            states = {"running", "not started", "failed"}
            settled = {job.id: _await(daemon, job.id, states) for job in jobs}
    failed = _failures(settled, {result["job"]: result.get("generation") for result in results})
    for result in results:
        if result["job"] in settled and result["job"] not in failed:
            result["told"] = "running."
    answer(output, results, lambda console: _draw_results(results, console))
    for name, reason in failed.items():
        message_console().print(Text(f"{name}: {reason}", "red"), soft_wrap=True)
    if failed:
        raise typer.Exit(1)


@app.command("load")
def load(
    name: Annotated[str, typer.Argument(help="tenant/name of the job.", show_default=False)],
    file: Annotated[
        str, typer.Argument(help="Full name of a Python file on the host.", show_default=False)
    ],
    mode: NewMode = None,
    anew: Anew = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Submit a job of a Python file that the engine host runs, from the administrator's folders."""
    if name.count("/") != 1:
        raise typer.BadParameter("Write tenant/name.", param_hint="NAME")
    with client(STARTING_S) as daemon:
        body = {"file": file, "mode": mode, "anew": anew}
        result = daemon.put(f"/jobs/{name}/python", body, dry_run=dry_run)
    answer(output, [result], lambda console: _draw_results([result], console))


def _failures(
    settled: Mapping[str, Mapping[str, Any] | None], generations: Mapping[str, int | None]
) -> dict[str, str]:
    """The jobs that do not run as they were submitted, with the reason."""
    return {
        name: "gone." if row is None else f"{row['state']}. {row['problem']}"
        for name, row in settled.items()
        if row is None or row["state"] != "running" or row["generation"] != generations[name]
    }


def _announce(plans: Sequence[Mapping[str, Any]]) -> None:
    """Says what changes before it is made, of jobs that run already."""
    for plan in plans:
        if plan["impact"] not in {"new", "none"}:
            message_console().print(Text(f"{plan['job']}: {plan['told']}", "dim"))


def _draw_results(results: list[dict[str, Any]], console: Console) -> None:
    for result in results:
        number = "" if result["dry_run"] else f" generation {result['generation']}"
        console.print(Text(f"{result['job']}{number}: {result['told']}"), soft_wrap=True)


def _await(daemon: Client, name: str, states: set[str]) -> dict[str, Any] | None:
    """Waits until a job is in one of these states with no action in flight; None if it is gone.
    The row tells what came about, also if that is none of them.
    """
    deadline = time.monotonic() + WAIT_S
    while True:
        rows = [row for row in job_rows(daemon) if row["job"] == name]
        if not rows:
            return None
        job: dict[str, Any] = rows[0]
        settled = job["state"] == "not started" or not job["in_flight"]
        if (job["state"] in states and settled) or time.monotonic() > deadline:
            return job
        time.sleep(0.3)


@app.command("list")
def list_(output: Output = Format.TABLE) -> None:
    """List all jobs with their state, mode and number of instances."""
    with client() as daemon:
        jobs = job_rows(daemon)
    answer(output, jobs, lambda console: _draw_jobs(jobs, console))


def _draw_jobs(jobs: Sequence[Mapping[str, Any]], console: Console) -> None:
    if not jobs:
        console.print("No jobs.")
        return
    rows = [[job["job"], state_text(job["state"]), *(job[c] for c in COLUMNS[2:])] for job in jobs]
    notes = [[Text(job["problem"], "red")] if job["problem"] else [] for job in jobs]
    optional = ("standing", "generation", "mode")
    console.print(Listing(COLUMNS, rows, notes, optional), crop=False)


@app.command("get")
def get(name: Name, output: Output = Format.YAML) -> None:
    """Print everything about one job: its spec, its allocation, its figures."""
    with client() as daemon:
        resource = daemon.get(f"/jobs/{resolve(daemon, name)}")
    job = {
        **job_row(resource),
        "conditions": resource["status"]["conditions"],
        "spec": resource["spec"],
        "figures": resource["figures"],
    }
    rows = [
        (key, str(value))
        for key, value in job.items()
        if key not in {"spec", "figures", "conditions"}
    ]
    rows += [(f"{c['type']}", f"{c['status']}: {c['reason']}") for c in job["conditions"]]
    answer(output, job, lambda console: console.print(Listing(("", ""), rows), crop=False))


@app.command("delete")
def delete(name: Name, wait: Wait = False, output: Output = Format.TABLE) -> None:
    """Stop a job and delete its checkpoints. Its history stays."""
    _change_state(name, "delete", wait, output)


@app.command("pause")
def pause(name: Name, wait: Wait = False, output: Output = Format.TABLE) -> None:
    """Stop a job until it is resumed. Its checkpoint stays."""
    _change_state(name, "pause", wait, output)


@app.command("resume")
def resume(name: Name, wait: Wait = False, output: Output = Format.TABLE) -> None:
    """Start a job again that was paused or has failed, from its checkpoint."""
    _change_state(name, "resume", wait, output)


def _change_state(name: str, change: str, wait: bool, output: Format) -> None:
    wanted = {"delete": "gone", "pause": "paused", "resume": "running"}[change]
    final = {wanted, "failed", "not started"} if change == "resume" else {wanted}
    with client() as daemon:
        job = resolve(daemon, name)
        path = f"/jobs/{job}"
        reply = job_row(
            daemon.delete(path) if change == "delete" else daemon.post(f"{path}/{change}")
        )
        if wait:
            reply = _await(daemon, job, final) or {**reply, "state": "gone", "problem": ""}
    answer(output, reply, lambda console: console.print(f"{job}: {reply['state']}", soft_wrap=True))
    if wait and reply["state"] != wanted:
        problem = f"{job} is {reply['state']}, not {wanted}. {reply['problem']}".rstrip()
        message_console().print(Text(problem, "red"), soft_wrap=True)
        raise typer.Exit(1)


@app.command("mode")
def mode(
    name: Name,
    mode: Annotated[Mode, typer.Argument(help="auto, advise or off.", show_default=False)],
    output: Output = Format.TABLE,
) -> None:
    """Set what the controller may do with a job: act (auto), only advise, or nothing (off)."""
    with client() as daemon:
        job = resolve(daemon, name)
        reply = job_row(daemon.put(f"/jobs/{job}/mode", {"mode": mode}))
    answer(output, reply, lambda console: console.print(f"{job}: {reply['mode']}", soft_wrap=True))


@app.command("priority")
def priority(
    name: Name,
    priority: Annotated[
        float, typer.Argument(help="Its maximum utility.", min=0, show_default=False)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what it means.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Set the priority of a job while it runs."""
    with client() as daemon:
        job = resolve(daemon, name)
        reply = daemon.put(f"/jobs/{job}/priority", {"priority": priority}, dry_run=dry_run)
    answer(output, reply, lambda console: _draw_results([reply], console))


@app.command("records")
def records(
    name: Name,
    place: Annotated[
        str,
        typer.Argument(help="A source, a sink, dead_letters, or from->to.", metavar="PLACE"),
    ],
    count: Annotated[
        int, typer.Option("-n", help="How many of the latest records of each topic.", min=1, max=50)
    ] = 5,
    output: Output = Format.TABLE,
) -> None:
    """Print the latest records at a place of a job. Of an edge inside a query: those that pass."""
    with client() as daemon:
        job = resolve(daemon, name)
        seen = daemon.get(f"/jobs/{job}/records/{quote(place, safe='')}", limit=count)
    answer(output, seen, lambda console: _draw_records(seen, console))


def _draw_records(seen: Mapping[str, Any], console: Console) -> None:
    if not seen["records"]:
        console.print(Text(f"There are no records at {seen['place']}."), soft_wrap=True)
    for record in seen["records"]:
        place = (
            f"{record['topic']}  partition {record['partition']}  offset {record['offset']}"
            if "topic" in record
            else f"to instance {record['instance']}"
        )
        value = value_text(record["value"], is_text=isinstance(record["value"], str))
        headers = record.get("headers", {}).items()
        drawn = record_text(record["time"], place, record.get("key"), headers, f"\n  {value}")
        console.print(drawn, soft_wrap=True)


@app.command("history")
def history(
    name: Name,
    limit: Annotated[
        int, typer.Option("--limit", help="Print at most so many of the latest events.")
    ] = 50,
    output: Output = Format.TABLE,
) -> None:
    """Print the versions of a job and its events. A deleted job needs its full name."""
    with client() as daemon:
        job = name if "/" in name else resolve(daemon, name)
        past = daemon.get(f"/jobs/{job}/history", limit=limit)

    def draw(console: Console) -> None:
        columns = ("generation", "accepted", "status")
        rows = [(v["generation"], v["accepted"], v["standing"]) for v in past["versions"]]
        notes = [[Text(v["told"], "dim")] if v["told"] else [] for v in past["versions"]]
        console.print(Text("versions", "bold"))
        console.print(Listing(columns, rows, notes), crop=False)
        console.print()
        for event in past["events"]:
            console.print(
                Text(f"{event['time']}  {event['kind']}  {event['text']}"), soft_wrap=True
            )

    answer(output, past, draw)
