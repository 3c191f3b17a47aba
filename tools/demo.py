"""What `make demo` runs: jobs of several tenants on Spark, a load that doubles, and the controller's answer.

Everything is started here and ended here: broker, Spark, jobs, controller, load. The jobs wait where they
work, so that more instances help on two cores as they would on forty; what computes is said below.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

PROGRAM = Path(sys.executable).with_name("trilithon")
# The first minute belongs to the JVM, which compiles what it runs.
WARM_S = 45
ROUND_S = 5.0


@dataclass(frozen=True)
class Tenant:
    """A job of the papers under another name, its load, and what its tenant wants."""

    tenant: str
    file: str
    topic: str
    rate: float
    priority: float
    doubles: bool = False


TENANTS = (
    Tenant("ads", "pageload", "pageload-loads", 100, 35, doubles=True),
    Tenant("shop", "linear", "linear-events", 40, 20),
    Tenant("search", "wordcount", "wordcount-sentences", 20, 5),
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=int, default=170, help="after the warm-up")
    arguments.add_argument("--off", action="store_true", help="the controller only looks on")
    options = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="trilithon-demo-") as folder,
        suppress(KeyboardInterrupt),
    ):
        os.environ["TRILITHON_STATE"] = folder
        show(Console(), Path(folder), options)


def show(console: Console, folder: Path, options: argparse.Namespace) -> None:
    from trilithon.cli.output import progress  # noqa: PLC0415 - after the state's folder is set
    from trilithon.control.rules import Rules  # noqa: PLC0415
    from trilithon.engines.spark.application import Setup  # noqa: PLC0415
    from trilithon.service.whole import whole  # noqa: PLC0415

    rules = Rules.of(
        {
            "policy": "threshold",
            # While the JVM compiles what it runs, figures say nothing: until then nobody acts.
            "mode": "off",
            "limits": {"round_s": ROUND_S, "cool_down_s": 10.0, "fresh_s": 10.0},
            "parameters": {"window_s": 10.0},
        }
    )
    setup = Setup("local[128]", folder / "spark", slots=16)
    console.print(
        "Three jobs of three tenants on one Spark application, in real-time mode, with a controller. "
        "A first start fetches the Kafka jars.\n"
    )
    with progress() as tell:
        started = whole(setup, [job_of(one) for one in TENANTS], rules, folder, tell)
        with started as system:
            tell("")
            with loads(system.kafka, options.seconds):
                phases = watch(console, system, options.seconds, acts=not options.off)
    summarise(console, phases, options.off)


def job_of(tenant: Tenant) -> Any:
    from trilithon.spec.load import load  # noqa: PLC0415

    job = load(Path(str(resources.files("trilithon.workloads") / "jobs" / f"{tenant.file}.yaml")))
    return replace(job, tenant=tenant.tenant, intent=replace(job.intent, priority=tenant.priority))


@contextmanager
def loads(address: str, seconds: int) -> Iterator[None]:
    """A load generator per job, ended with the demo; one of them doubles after a while."""
    running: list[subprocess.Popen[bytes]] = []
    doubles_s = doubles_at(seconds)
    try:
        for one in TENANTS:
            command = [
                PROGRAM,
                "load",
                "--kafka",
                address,
                "--topic",
                one.topic,
                "--rate",
                str(one.rate),
            ]
            if one.doubles:
                peak = ["--shape", "step", "--peak", str(2 * one.rate), "--period", f"{doubles_s}s"]
                command += peak
            running.append(start([*command, "--for", f"{WARM_S + seconds + 60}s"]))
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(timeout=20)


def doubles_at(seconds: int) -> int:
    return WARM_S + seconds // 4


def start(command: list[Any]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def watch(console: Console, system: Any, seconds: int, *, acts: bool) -> dict[str, dict[str, Any]]:
    """The live view with what was decided; the figures of each phase at its end."""
    from trilithon.cli import live  # noqa: PLC0415
    from trilithon.policies.scene import Mode  # noqa: PLC0415

    doubles_s, began, told_s = doubles_at(seconds), time.monotonic(), time.time()
    phases: dict[str, dict[str, Any]] = {}
    decided: list[Text] = []
    figures: list[dict[str, Any]] = []
    with Live(console=console, auto_refresh=False, transient=True) as shown:
        while (passed := time.monotonic() - began) < WARM_S + seconds:
            figures = system.look()
            if acts and passed > WARM_S:
                acts = False
                for job in figures:
                    system.daemon.desk.mode(job["job"], Mode.AUTO)
                shown.console.print(f"{passed:3.0f} s  the controller looks after the jobs now")
            phase = "before" if passed < doubles_s else "with twice the load"
            jobs = {job["job"]: job for job in figures}
            worst = phases.get(phase)
            if phase == "before" or worst is None or total(jobs) < total(worst):
                phases[phase] = jobs
            for one in system.decided(told_s):
                told_s = one.time_s
                line = Text(f"{passed:3.0f} s  {one.job or 'cluster'}  {one.sentence}")
                decided.append(line)
                shown.console.print(line)
            head = Text(f"{passed:3.0f} s  {note(passed, doubles_s)}", "dim")
            shown.update(Group(head, live.draw(figures)), refresh=True)
            time.sleep(1)
    phases["at the end"] = {job["job"]: job for job in figures}
    return phases


def note(passed: float, doubles_s: int) -> str:
    if passed < WARM_S:
        return "the JVM warms up"
    return (
        "the load of ads/pageload is 100 records/s"
        if passed < doubles_s
        else ("the load of ads/pageload is 200 records/s")
    )


def total(jobs: Mapping[str, Mapping[str, Any]]) -> float:
    return sum(job.get("utility") or 0.0 for job in jobs.values())


def summarise(console: Console, phases: Mapping[str, dict[str, Any]], off: bool) -> None:
    from trilithon.cli.output import table  # noqa: PLC0415

    columns = ("", "in/s", "p95 ms", "lag", "join", "utility", "of", "all", "of")
    rows = []
    for name, jobs in phases.items():
        job = jobs.get("ads/pageload", {})
        instances = {one["operator"]: one["parallelism"] for one in job.get("operators", ())}
        most = sum(one.get("max_utility") or 0.0 for one in jobs.values())
        found = [job.get(key) for key in ("input_per_s", "p95_ms", "lag")]
        worth = [job.get("utility"), job.get("max_utility"), total(jobs), most]
        rows.append((name, *found, instances.get("join"), *worth))
    console.print()
    console.print(table("ads/pageload, and what all three are worth", columns, rows))
    who = "Nobody acted: the controller was off." if off else "The controller did what was done."
    console.print(f'\n{who} "With twice the load" is the worst look of that phase.')


if __name__ == "__main__":
    main()
