"""Owns the command `advise`: measures of a recording, or what a policy decides at its end."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.advice import advice, draw_advice
from trilithon.cli.output import Format, Output, answer, complain
from trilithon.cli.promises import Promise, draw_promises, promises
from trilithon.control.encoding import decision_to_json
from trilithon.control.replay import last_capabilities, last_statuses, replay, rounds_of
from trilithon.errors import InvalidPolicy, InvalidRecording
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.policies.registry import policy as known_policy

LATENCY: Final = "latency"


def advise_command(
    recording: Annotated[
        Path,
        typer.Argument(help="A recording: Parquet, JSON, or a folder.", show_default=False),
    ],
    policy: Annotated[
        str | None, typer.Option("--policy", help="What this policy would do, and why.")
    ] = None,
    constraint: Annotated[
        str | None,
        typer.Option(
            "--constraint",
            help='With --policy latency: how many instances "parse..score 20 ms" would need.',
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Print every measure of a recorded snapshot or series."""
    if constraint is not None:
        if policy != LATENCY:
            raise InvalidPolicy(
                "`--constraint` is a question to the policy `latency`.", "Add --policy latency."
            )
        rounds = rounds_of(recording)
        tables, refusals = promises(
            _series(rounds),
            last_statuses(rounds),
            Promise.of(constraint),
            last_capabilities(rounds),
        )
        answer(output, tables, lambda console: draw_promises(tables, console))
        for refusal in refusals:
            complain(refusal)
        return
    if policy is not None:
        _advise_by(recording, policy, output)
        return
    series = _series(rounds_of(recording))
    if series.window() is None:
        raise InvalidRecording(
            f"{recording} holds one snapshot without `since_s`: its counters have no start time.",
            "Add `since_s` to it, or give a series.",
        )
    measures = advice(series)
    answer(output, measures, lambda console: draw_advice(measures, console))


def _series(rounds: Sequence[tuple[Snapshot, Mapping[str, Any] | None]]) -> Series:
    """The snapshots of a recording. Some of a folder are in two of its files."""
    by_time = {snapshot.time_s: snapshot for snapshot, _ in rounds}
    return Series(tuple(by_time[time_s] for time_s in sorted(by_time)))


def _advise_by(recording: Path, name: str, output: Format) -> None:
    """What a policy would decide at the end of a recording."""
    *_, last = replay(recording, known_policy(name, {}))
    data = [decision_to_json(decision) for decision in last.decisions]

    def draw(console: Console) -> None:
        if not data:
            console.print(f"{name} would change nothing.")
        for decision in data:
            where = decision["job"] or "cluster"
            line = f"{where}  {decision['reason']}  {decision['sentence']}"
            console.print(Text(line), soft_wrap=True)

    answer(output, data, draw)
