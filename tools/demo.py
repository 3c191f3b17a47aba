"""What `make demo` runs: three jobs of the papers on Spark's real-time mode, under load.

The load of one of them triples; what holds it back shows in the table; it gets more instances while it
runs, and recovers. Everything is started here and ended here: broker, Spark, jobs, load.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

# The first half minute belongs to the JVM, which compiles what it runs.
SECONDS = 100
TRIPLES_AT_S = 48
RESCALE_AT_S = 65
RATES = {"linear-events": 40, "wordcount-sentences": 20, "pageload-loads": 100}
PROGRAM = Path(sys.executable).with_name("trilithon")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="trilithon-demo-") as folder:
        os.environ["TRILITHON_STATE"] = folder
        show(Console())


def show(console: Console) -> None:
    from trilithon import folders  # noqa: PLC0415
    from trilithon.cli.output import progress  # noqa: PLC0415 - after the state's folder is set
    from trilithon.cli.run import Watcher, running  # noqa: PLC0415
    from trilithon.engines.spark import broker  # noqa: PLC0415
    from trilithon.engines.spark.application import Setup  # noqa: PLC0415
    from trilithon.spec.load import load  # noqa: PLC0415

    files = resources.files("trilithon.workloads") / "jobs"
    jobs = [load(Path(str(files / f"{name}.yaml"))) for name in ("linear", "pageload", "wordcount")]
    setup = Setup("local[128]", folders.state() / "spark", slots=32)
    console.print(
        "Three jobs on one Spark application, in real-time mode. A first start fetches the Kafka jars.\n"
    )
    with progress() as tell, running(setup, jobs, tell) as engine:
        address = broker.status().address or ""
        with loads(address):
            found = watch(console, Watcher(engine), engine)
    summarise(console, found)


@contextmanager
def loads(address: str) -> Iterator[None]:
    """A load generator per job, ended with the demo."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for topic, rate in RATES.items():
            command = [PROGRAM, "load", "--kafka", address, "--topic", topic, "--rate", str(rate)]
            running.append(start([*command, "--for", f"{SECONDS}s"]))
        yield
    finally:
        for process in running:
            process.terminate()
            process.wait(timeout=20)


def start(command: list[Any]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def watch(console: Console, watcher: Any, engine: Any) -> dict[str, dict[str, Any]]:
    """The live view, and what happens in between; the figures of each phase at its end."""
    from trilithon.cli import live  # noqa: PLC0415
    from trilithon.contract.engine import Reallocate  # noqa: PLC0415
    from trilithon.engines.spark import broker  # noqa: PLC0415

    phases: dict[str, dict[str, Any]] = {}
    more: list[subprocess.Popen[bytes]] = []
    began = time.monotonic()
    happened = 0
    try:
        with Live(console=console, auto_refresh=False, transient=True) as shown:
            while (passed := time.monotonic() - began) < SECONDS:
                jobs = {job["job"]: job for job in watcher.look(time.time())}
                shown.update(live.draw(list(jobs.values())), refresh=True)
                if happened == 0 and passed > TRIPLES_AT_S:
                    happened = 1
                    phases["calm"] = jobs["papers/pageload"]
                    rest = f"{SECONDS - passed:.0f}s"
                    more.append(start([PROGRAM, "load", "--kafka", broker.status().address, "--topic",
                                       "pageload-loads", "--rate", "200", "--for", rest]))  # fmt: skip
                    shown.console.print(
                        f"{passed:3.0f} s  the load of papers/pageload triples: 300 records/s"
                    )
                elif happened == 1 and passed > RESCALE_AT_S:
                    happened = 2
                    phases["overloaded"] = jobs["papers/pageload"]
                    wanted = engine.jobs()["papers/pageload"].allocation.rescaled({"join": 4})
                    outcome = engine.apply(Reallocate(wanted))
                    shown.console.print(
                        f"{passed:3.0f} s  join gets 4 instances, live: {outcome.status.value}"
                    )
                time.sleep(1)
        phases["with 4 instances"] = jobs["papers/pageload"]
    finally:
        for process in more:
            process.terminate()
            process.wait(timeout=20)
    return phases


def summarise(console: Console, phases: dict[str, dict[str, Any]]) -> None:
    from trilithon.cli.output import table  # noqa: PLC0415

    rows = [
        (name, *(job.get(key) for key in ("input_per_s", "output_per_s", "lag", "p50_ms", "p95_ms",
                                          "juice", "utility", "max_utility")))
        for name, job in phases.items()
    ]  # fmt: skip
    columns = (
        "papers/pageload",
        "in/s",
        "out/s",
        "lag",
        "p50 ms",
        "p95 ms",
        "juice",
        "utility",
        "of",
    )
    console.print()
    console.print(table(None, columns, rows))
    console.print("\nNobody decided here but this script: the controller that does comes next.")


if __name__ == "__main__":
    main()
