"""Records the rounds of a run (snapshots, statuses, decisions) in files that can be replayed.

A file holds an hour of rounds, and can be read once it is closed.
"""

from pathlib import Path
from typing import Any, Final

from trilithon.control.encoding import (
    cluster_to_json,
    decision_to_json,
    feedback_to_json,
    request_to_json,
    status_to_json,
    text,
)
from trilithon.policies.policy import Policy, State, Verdict
from trilithon.policies.scene import Scene
from trilithon.recording.rolling import RollingRecorder

ROUNDS_PER_FILE: Final = 360
# Version 0.1 wrote rounds without a format: their decisions have actions instead of changes.
FORMAT: Final = 2


def round_to_json(scene: Scene, policy: Policy, state: State, verdict: Verdict) -> dict[str, Any]:
    """Everything but the series: only its length is kept, its snapshots are in the file."""
    return {
        "round": scene.round,
        "policy": policy.name,
        "parameters": policy.parameters.given(),
        "state": state,
        "snapshots": len(scene.series),
        "limit_s": scene.series.limit_s,
        "format": FORMAT,
        "statuses": [status_to_json(status) for status in scene.statuses.values()],
        "feedback": [feedback_to_json(feedback) for feedback in scene.feedback.values()],
        "cluster": cluster_to_json(scene.cluster),
        **({"requests": list(map(request_to_json, scene.requests))} if scene.requests else {}),
        "decisions": [decision_to_json(decision) for decision in verdict.decisions],
        "next_round_s": verdict.next_round_s,
    }


class RecordingFolder(RollingRecorder):
    """Writes rounds into files of a folder, each named by its first round and its time."""

    def __init__(self, folder: Path, rounds_per_file: int = ROUNDS_PER_FILE) -> None:
        super().__init__(folder, rounds_per_file)

    def write(self, scene: Scene, policy: Policy, state: State, verdict: Verdict) -> None:
        # After a restart a round may get the number of an earlier one; neither file may be
        # overwritten.
        name = f"rounds-{scene.round:010d}-{scene.now_s:.3f}.parquet"
        body = text(round_to_json(scene, policy, state, verdict))
        self.append(scene.series.last, name, body, scene.series.snapshots[:-1])
