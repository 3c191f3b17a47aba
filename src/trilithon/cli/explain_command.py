"""Owns the command `explain`: decisions and their reasons, from a daemon or its journal."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.client import client
from trilithon.cli.job_commands import full_name, resolve
from trilithon.cli.output import Format, Output, answer
from trilithon.control.explain import explain, explain_cluster
from trilithon.control.journal import Journal
from trilithon.errors import FileUnreadable


def explain_command(
    job: Annotated[
        str | None,
        typer.Argument(
            help="tenant/name, or the name alone; without it, the whole cluster.",
            show_default=False,
        ),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Read this journal; no daemon is needed.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", help="Print at most so many of the latest decisions.")
    ] = 10,
    output: Output = Format.TABLE,
) -> None:
    """Explain decisions about a job or the cluster. Each with its reason and its outcome."""
    if journal is None:
        with client() as daemon:
            if job is None:
                path = "/cluster/explanation"
            else:
                path = f"/jobs/{job if '/' in job else resolve(daemon, job)}/explanation"
            decisions = daemon.get(path, limit=limit)
    else:
        decisions = _from_journal(journal, job, limit)

    def draw(console: Console) -> None:
        if not decisions:
            console.print(
                f"No decision about {job or 'the cluster'} is in the journal.", soft_wrap=True
            )
        for decision in decisions:
            first, *rest = decision["sentences"]
            console.print(Text.assemble((decision["time"], "bold"), "  ", first), soft_wrap=True)
            for sentence in rest:
                console.print(Text(f"    {sentence}"), soft_wrap=True)

    answer(output, decisions, draw)


def _from_journal(path: Path, job: str | None, limit: int) -> list[dict[str, Any]]:
    if not path.is_file():
        raise FileUnreadable(f"{path} cannot be read: no such file.", "Check the name.")
    journal = Journal(path)
    try:
        if job is None:
            return explain_cluster(journal, limit)
        return explain(journal, job if "/" in job else full_name(journal.jobs(), job), limit)
    finally:
        journal.close()
