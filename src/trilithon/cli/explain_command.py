"""Owns the command `explain`: why the controller decided what it did, from a daemon or its journal."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.client import client
from trilithon.cli.job_commands import one_of, resolve
from trilithon.cli.output import Format, Output, answer
from trilithon.control.explain import explain
from trilithon.control.journal import Journal
from trilithon.errors import FileUnreadable


def explain_command(
    job: Annotated[str, typer.Argument(help="tenant/name, or just the name.", show_default=False)],
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Read this journal; no daemon is needed.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Of the latest decisions, so many.")] = 10,
    output: Output = Format.TABLE,
) -> None:
    """Explain what was decided about a job, why, and the outcome."""
    if journal is None:
        with client() as daemon:
            name = job if "/" in job else resolve(daemon, job)
            found = daemon.get(f"/jobs/{name}/explanation", limit=limit)
    else:
        found = _from_journal(journal, job, limit)

    def draw(console: Console) -> None:
        if not found:
            console.print("Nothing was decided about it.")
        for one in found:
            first, *rest = one["sentences"]
            console.print(Text.assemble((one["time"], "bold"), "  ", first), soft_wrap=True)
            for sentence in rest:
                console.print(Text(f"    {sentence}"), soft_wrap=True)

    answer(output, found, draw)


def _from_journal(path: Path, job: str, limit: int) -> list[dict[str, Any]]:
    if not path.is_file():
        raise FileUnreadable(f"{path} cannot be read: no such file.", "Check the name.")
    journal = Journal(path)
    try:
        return explain(journal, job if "/" in job else one_of(journal.jobs(), job), limit)
    finally:
        journal.close()
