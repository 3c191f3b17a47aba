"""Owns the command `explain`: decisions and their reasons, from a daemon or its journal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.client import client
from trilithon.cli.job_commands import full_name, resolve
from trilithon.cli.output import Format, Output, answer
from trilithon.control.explain import chains, explain, explain_cluster
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
        int,
        typer.Option(
            "--limit",
            help="Print at most so many of the latest decisions, and those they follow from.",
        ),
    ] = 10,
    output: Output = Format.TABLE,
) -> None:
    """Explain decisions about a job or the cluster. Each with its reason and its outcome.

    A decision has an id. Those that follow from each other stand together, the oldest first.
    """
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
        for number, chain in enumerate(chains(decisions)):
            if number:
                console.print()
            for decision in chain:
                _draw_decision(console, decision)

    answer(output, decisions, draw)


def _draw_decision(console: Console, decision: Mapping[str, Any]) -> None:
    first, *rest = decision["sentences"]
    head = Text.assemble((decision["time"], "bold"), "  ", (decision["id"], "cyan"), "  ", first)
    console.print(head, soft_wrap=True)
    for sentence in rest:
        console.print(Text(f"    {sentence}"), soft_wrap=True)


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
