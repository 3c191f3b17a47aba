"""Owns the command `replay`: what a policy decides on a recording, offline."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.output import Format, Output, answer
from trilithon.control.encoding import decision_to_json
from trilithon.control.explain import clock
from trilithon.control.replay import Replayed, replay
from trilithon.policies.registry import POLICIES, policy

Parameter = Annotated[
    list[str] | None, typer.Option("--parameter", help="NAME=VALUE of the policy; repeatable.")
]


def parameters(given: list[str] | None) -> dict[str, float | str]:
    """Parameters of a policy from the command line: an integer, a number, or else a word."""
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
    """Replay a policy on a recording: the same bytes every time."""
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
