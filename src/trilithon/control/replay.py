"""Replays a recording: a policy decides on its rounds again, with the same bytes every time."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from trilithon.control.encoding import (
    cluster_from_json,
    decision_to_json,
    feedback_from_json,
    request_from_json,
    status_from_json,
    text,
)
from trilithon.control.recorder import FORMAT
from trilithon.errors import FileUnreadable, InvalidRecording
from trilithon.model.action import Outcome, Status
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.change import ParallelismChange
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.policies.decision import Decision
from trilithon.policies.feedback import Clip, Feedback
from trilithon.policies.policy import Policy, State
from trilithon.policies.scene import Cluster, JobStatus, Scene, Span
from trilithon.recording import files, parquet


@dataclass(frozen=True)
class Replayed:
    """A round that was replayed. `recorded` are the decisions in the recording, if they are of the
    same policy with the same parameters.
    """

    round: int
    time_s: float
    decisions: tuple[Decision, ...]
    recorded: tuple[Mapping[str, Any], ...] | None

    def lines(self) -> list[str]:
        return [text(decision_to_json(decision)) for decision in self.decisions]

    @property
    def same(self) -> bool | None:
        if self.recorded is None:
            return None
        return self.lines() == [text(decision) for decision in self.recorded]


def replay(path: Path, policy: Policy, seed: int | None = None) -> Iterator[Replayed]:
    """Replays every round. The policy's state is handed from round to round; the first is that of
    the recording if it is of this policy, and the seed otherwise.
    """
    yield from replayed(rounds_of(path), policy, seed)


def rounds_of(path: Path) -> list[tuple[Snapshot, Mapping[str, Any] | None]]:
    """The snapshots of a recording, or of all recordings in a folder, with what the round knew."""
    if not path.is_dir():
        try:
            with path.open("rb") as stream:
                known = stream.read(4) == b"PAR1"
        except OSError as error:
            raise FileUnreadable(
                f"{path} cannot be read: {error.strerror}.", "Check the name."
            ) from error
        if not known:
            return [(snapshot, None) for snapshot in files.load_recording(path).snapshots]
        return [
            (snapshot, None if body is None else json.loads(body))
            for snapshot, body in parquet.read_rounds(path)
        ]
    paths = sorted(path.glob("*.parquet"))
    if not paths:
        raise FileUnreadable(f"There is no recording in {path}.", "Check the name.")
    # The first snapshots of a file are the last of the file before it.
    return [pair for file in paths for pair in rounds_of(file)]


def replayed(
    rounds: Sequence[tuple[Snapshot, Mapping[str, Any] | None]],
    policy: Policy,
    seed: int | None = None,
) -> Iterator[Replayed]:
    plain = all(known is None for _, known in rounds)
    state: State | None = None
    past: list[Snapshot] = []
    guess = _Guess(policy)
    for number, (snapshot, known) in enumerate(rounds, 1):
        if past and snapshot.time_s <= past[-1].time_s:
            # A new file begins with its look-back, or the clock was set back.
            past = [s for s in past if s.time_s < snapshot.time_s] if known is None else []
        past.append(snapshot)
        if known is not None:
            scene, same = _recorded_scene(past, known, policy)
            past = past[-max(known["snapshots"], len(scene.series)) :]
            if state is None and same and seed is None:
                state = known["state"]
        elif plain:
            scene, same = guess.scene(number, past), False
        else:
            continue
        verdict = policy.decide(scene, {"seed": seed or 0} if state is None else state)
        state = verdict.state
        guess.decided(verdict.decisions)
        # Decisions of version 0.1 have another format and cannot be compared.
        comparable = known is not None and same and known.get("format", 1) == FORMAT
        recorded = tuple(known["decisions"]) if known is not None and comparable else None
        yield Replayed(scene.round, scene.now_s, verdict.decisions, recorded)


def _recorded_scene(
    past: Sequence[Snapshot], known: Mapping[str, Any], policy: Policy
) -> tuple[Scene, bool]:
    """The scene of a recorded round, and whether the policy is that of the recording."""
    same = known["policy"] == policy.name and known["parameters"] == policy.parameters.given()
    if known["snapshots"] > len(past):
        raise InvalidRecording(
            f"Round {known['round']} looks back on {known['snapshots']} snapshots; "
            f"the recording has {len(past)}.",
            "Replay it together with the files before it.",
        )
    seen = tuple(past[-known["snapshots"] :])
    feedback = [feedback_from_json(item) for item in known.get("feedback", ())]
    scene = Scene(
        known["round"],
        Series(seen, known["limit_s"] if same else policy.lookback_s),
        _statuses(known),
        cluster_from_json(known["cluster"]),
        {item.decision: item for item in feedback},
        requests=tuple(map(request_from_json, known.get("requests", ()))),
    )
    return scene, same


def _statuses(known: Mapping[str, Any]) -> dict[str, JobStatus]:
    old = known.get("format", 1) < FORMAT
    statuses = map(status_from_json, known["standings" if old else "statuses"])
    return {status.job: status for status in statuses}


# What the engine of a recording without rounds counts as able to do: everything, and batching as
# Spark can.
_ASSUMED: Final = Capabilities(
    {**dict.fromkeys(Ability, How.LIVE), Ability.BATCHING: How.AT_BOUNDARY}
)


class _Guess:
    """Scenes for a recording without rounds: jobs have the instances that each snapshot shows, and
    a decision counts as done where the next snapshot shows its result.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._statuses: dict[str, JobStatus] = {}
        self._decided: tuple[Decision, ...] = ()
        self._feedback: dict[str, Feedback] = {}

    def scene(self, number: int, past: Sequence[Snapshot]) -> Scene:
        last = past[-1]
        self._statuses = {name: self._status(last, name) for name in last.jobs}
        self._look_back(number, last)
        cluster = Cluster(_ASSUMED)
        series = Series(tuple(past), self._policy.lookback_s)
        return Scene(number, series, self._statuses, cluster, dict(self._feedback))

    def decided(self, decisions: tuple[Decision, ...]) -> None:
        self._decided = decisions

    def _look_back(self, number: int, last: Snapshot) -> None:
        """Feedback on the decisions of the round before, from what the snapshot shows now."""
        for decision in self._decided:
            shown = [
                change
                for change in decision.changes
                if isinstance(change, ParallelismChange)
                and change.job in self._statuses
                and change.parallelism.items()
                <= self._statuses[change.job].allocation.parallelism.items()
            ]
            missing = [] if len(shown) == len(decision.changes) else [Clip("ADVICE_ONLY")]
            self._feedback[decision.id] = Feedback(
                decision=decision.id,
                round=number - 1,
                time_s=last.time_s,
                job=decision.job,
                granted=tuple(shown),
                clips=tuple(missing),
                outcomes=(Outcome(Status.DONE),) if shown else (),
            )
        oldest = number - self._policy.feedback_rounds
        self._feedback = {id_: f for id_, f in self._feedback.items() if f.round >= oldest}

    def _status(self, snapshot: Snapshot, name: str) -> JobStatus:
        status, before = status_in(snapshot, name), self._statuses.get(name)
        if before is None:
            return status
        wanted = status.allocation.parallelism
        if before.allocation.parallelism == wanted:
            return before
        return replace(
            before, allocation=before.allocation.rescaled(wanted), changed_s=snapshot.time_s
        )


def last_capabilities(
    rounds: Sequence[tuple[Snapshot, Mapping[str, Any] | None]],
) -> Capabilities:
    """What the engine of a recording can do, by its last round; assumed without rounds."""
    recorded = (known for _, known in reversed(rounds) if known is not None)
    return next((cluster_from_json(known["cluster"]).capabilities for known in recorded), _ASSUMED)


def last_statuses(
    rounds: Sequence[tuple[Snapshot, Mapping[str, Any] | None]],
) -> dict[str, JobStatus]:
    """The statuses of all jobs at the end of a recording: from its last round, or, without rounds,
    as far as the last snapshot shows them. Instances are those of the snapshot.
    """
    last = rounds[-1][0]
    recorded = next((_statuses(known) for _, known in reversed(rounds) if known is not None), {})
    shown = {name: status_in(last, name) for name in last.jobs}
    return {
        name: replace(recorded[name], allocation=status.allocation) if name in recorded else status
        for name, status in shown.items()
    }


def status_in(snapshot: Snapshot, name: str) -> JobStatus:
    """The status of a job as far as a snapshot shows it. Operators with state count as fixed, as
    they are on Spark.
    """
    job, seen = snapshot.jobs[name], snapshot.job(name).parallelism
    stateful = (operator.name for operator in job.operators if operator.work.stateful)
    return JobStatus(
        job=name,
        tenant=job.tenant,
        allocation=Allocation(
            name, 1, {o.name: max(1, seen.get(o.name, 0)) for o in job.operators}
        ),
        accepted_s=snapshot.time_s,
        fixed=frozenset((*job.bounds.fixed, *stateful)),
        spans={o.name: Span(o.parallelism.min, o.parallelism.max) for o in job.operators},
    )
