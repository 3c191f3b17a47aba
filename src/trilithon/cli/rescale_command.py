"""Owns the command `rescale`: another parallelism for the operators of a running job."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from trilithon.cli.job_commands import full_name
from trilithon.cli.output import Format, Output, answer
from trilithon.cli.processes import socket_path
from trilithon.contract.engine import Reallocate, Status
from trilithon.engines.remote import RemoteEngine
from trilithon.errors import Refused


def rescale_command(
    job: Annotated[str, typer.Argument(help="tenant/name, or the name alone.", show_default=False)],
    changes: Annotated[list[str], typer.Argument(help="OPERATOR=INSTANCES …", show_default=False)],
    socket: Annotated[Path | None, typer.Option("--socket", help="The socket of the host.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Change the parallelism of a running job's operators. The job runs in another terminal."""
    wanted = dict(_change(text) for text in changes)
    remote = RemoteEngine(socket or socket_path())
    try:
        jobs = remote.jobs()
        name = full_name(list(jobs), job)
        allocation = jobs[name].allocation.rescaled(wanted).next_generation()
        outcome = remote.apply(Reallocate(allocation))
    finally:
        remote.close()
    if outcome.status is not Status.DONE:
        raise Refused(outcome.code, outcome.message)
    data = {
        "job": name,
        "generation": allocation.generation,
        "parallelism": dict(allocation.parallelism),
        **({"code": outcome.code, "message": outcome.message} if outcome.code else {}),
    }
    counts = ", ".join(f"{operator} ×{p}" for operator, p in allocation.parallelism.items())
    line = f"{name}: {counts}{outcome.message and f'. {outcome.message}'}"
    answer(output, data, lambda console: console.print(Text(line), soft_wrap=True))


def _change(text: str) -> tuple[str, int]:
    operator, _, count = text.partition("=")
    if not count.isdigit() or int(count) < 1:
        raise typer.BadParameter(f"{text!r}: write OPERATOR=INSTANCES, with 1 or more.")
    return operator, int(count)
