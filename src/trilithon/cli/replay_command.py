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
from trilithon.plugins import policy
from trilithon.policies.registry import POLICIES

Parameter = Annotated[
    list[str] | None,
    typer.Option("--parameter", help="NAME=VALUE: a parameter of the policy; repeatable."),
]


def parameters(given: list[str] | None) -> dict[str, float | str]:
    """Parameters of a policy from the command line: an integer, a number, or else a word."""
    values: dict[str, float | str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not (equals and name and value):
            raise typer.BadParameter(f"{text!r}: write NAME=VALUE.")
        try:
            values[name] = int(value) if value.lstrip("-").isdigit() else float(value)
        except ValueError:
            values[name] = value
    return values


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
        typer.Option("--seed", help="Start with this seed instead of the recorded state."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Replay a policy on a recording: the same bytes every time."""
    rounds = list(replay(recording, policy(policy_name, parameters(parameter)), seed))
    data = [
        {
            "round": replayed.round,
            "time_s": replayed.time_s,
            "same_as_recorded": replayed.same,
            "decisions": [decision_to_json(decision) for decision in replayed.decisions],
        }
        for replayed in rounds
    ]
    answer(output, data, lambda console: _draw(rounds, console))


def _draw(rounds: list[Replayed], console: Console) -> None:
    for replayed in rounds:
        for decision in replayed.decisions:
            where = decision.job or "cluster"
            line = f"{clock(replayed.time_s)}  {where}  {decision.reason}  {decision.sentence}"
            console.print(Text(line), soft_wrap=True)
    compared = [replayed.same for replayed in rounds if replayed.same is not None]
    decided = sum(len(replayed.decisions) for replayed in rounds)
    summary = f"{len(rounds)} rounds, {decided} decisions"
    if compared:
        summary += f"; {sum(compared)} of {len(compared)} rounds as recorded"
    console.print(Text(summary, "dim"))
