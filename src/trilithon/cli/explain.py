"""Owns telling why: `explain` from a daemon or its journal, and `replay` of a recording."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.client import client
from trilithon.cli.job import one_of, resolve
from trilithon.cli.output import Format, Output, answer
from trilithon.control.encoding import decision_to_json
from trilithon.control.explain import clock, explain
from trilithon.control.journal import Journal
from trilithon.control.replay import Replayed, replay
from trilithon.errors import FileUnreadable
from trilithon.policies.registry import POLICIES, policy

Parameter = Annotated[
    list[str] | None, typer.Option("--parameter", help="NAME=VALUE of the policy; repeatable.")
]


def explain_command(
    job: Annotated[str, typer.Argument(help="tenant/name, or just the name.", show_default=False)],
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Read this journal; no daemon is needed.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Of the latest decisions, so many.")] = 10,
    output: Output = Format.TABLE,
) -> None:
    """Tell in sentences what was decided about a job, why, and what came of it."""
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


def parameters(given: list[str] | None) -> dict[str, float | str]:
    """Parameters of a policy from the command line: whole numbers stay whole, and what is no number is a word."""
    found: dict[str, float | str] = {}
    for one in given or []:
        name, there, value = one.partition("=")
        if not (there and name and value):
            raise typer.BadParameter(f"{one!r}: write NAME=VALUE.")
        try:
            found[name] = int(value) if value.lstrip("-").isdigit() else float(value)
        except ValueError:
            found[name] = value
    return found


def replay_command(
    recording: Annotated[
        Path, typer.Argument(help="A recording, or a folder of them.", show_default=False)
    ],
    policy_name: Annotated[
        str, typer.Option("--policy", help=f"One of: {', '.join(POLICIES)}.")
    ] = "threshold",
    parameter: Parameter = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Begin anew with this seed, forgetting what was known."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Decide again, offline, what a policy decides on a recording: the same bytes every time."""
    rounds = list(replay(recording, policy(policy_name, parameters(parameter)), seed))
    data = [
        {"round": one.round, "time_s": one.time_s, "same_as_recorded": one.same,
         "decisions": [decision_to_json(decision) for decision in one.decisions]}
        for one in rounds
    ]  # fmt: skip
    answer(output, data, lambda console: _draw(rounds, console))


def _draw(rounds: list[Replayed], console: Console) -> None:
    for one in rounds:
        for decision in one.decisions:
            where = decision.job or "cluster"
            line = f"{clock(one.time_s)}  {where}  {decision.reason}  {decision.sentence}"
            console.print(Text(line), soft_wrap=True)
    compared = [one for one in rounds if one.same is not None]
    decided = sum(len(one.decisions) for one in rounds)
    told = f"{len(rounds)} rounds, {decided} decisions"
    if compared:
        told += f"; {sum(bool(one.same) for one in compared)} of {len(compared)} rounds as recorded"
    console.print(Text(told, "dim"))
