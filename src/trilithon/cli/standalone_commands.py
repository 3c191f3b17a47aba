"""Owns `cluster start` and `cluster stop`: a Spark standalone cluster on this machine."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.output import Format, Output, answer, message_console, progress, table
from trilithon.engines.spark.cluster_shares import LEAST_MEMORY_MB
from trilithon.engines.spark.standalone import StandaloneCluster

CORES = 32
MEMORY_MB = 2048

Workers = Annotated[int, typer.Option("--workers", help="How many workers at least.", min=1)]
Cores = Annotated[
    int,
    typer.Option(
        "--cores",
        help="How many tasks run on a new worker at once. They are threads that mostly wait, so "
        "there may be far more than cores.",
        min=1,
    ),
]
MemoryMb = Annotated[
    int,
    typer.Option("--memory", help="The memory of a new worker, in MB.", min=LEAST_MEMORY_MB),
]


def start(
    workers: Workers = 2,
    cores: Cores = CORES,
    memory: MemoryMb = MEMORY_MB,
    output: Output = Format.TABLE,
) -> None:
    """Start a Spark standalone cluster on this machine and print the address of its master, for
    `--master`. What runs already is left alone; `cluster stop` ends it.
    """
    with progress() as tell:
        cluster = StandaloneCluster(progress=tell)
        status = cluster.start(workers, cores, memory)
    if len(status.workers) > workers:
        more = f"{len(status.workers)} workers were running already."
        message_console().print(more, style="dim")
    address = status.master or ""
    answer(output, status.to_json(), lambda console: console.print(address, soft_wrap=True))


def stop(output: Output = Format.TABLE) -> None:
    """Stop the standalone cluster of this state folder, its workers and their executors."""
    stopped = StandaloneCluster().stop()

    def draw(console: Console) -> None:
        processes = ", ".join(map(str, stopped))
        console.print(f"Stopped processes {processes}." if stopped else "No cluster was running.")

    answer(output, {"stopped": bool(stopped), "pids": stopped}, draw)


def standalone_status() -> dict[str, Any] | None:
    """The standalone cluster of this state folder; None if none runs."""
    status = StandaloneCluster().status()
    return None if status.pid is None else status.to_json()


def draw_workers(standalone: dict[str, Any], console: Console) -> None:
    state = "" if standalone["answers"] else ", which does not answer"
    console.print(Text(f"standalone cluster {standalone['master']}{state}"), soft_wrap=True)
    keys = ("number", "pid", "cores", "cores_used", "memory_mb")
    rows = [[worker[key] for key in keys] for worker in standalone["workers"]]
    heads = ("worker", "process", "tasks", "tasks in use", "memory MB")
    console.print(table(None, heads, rows))
