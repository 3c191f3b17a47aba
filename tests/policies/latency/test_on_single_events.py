"""The policy `latency` on the simulated cluster with single records: no formula is built in."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trilithon.control.rules import Limits
from trilithon.measures.constraints import assess_constraints
from trilithon.policies.latency import messages
from trilithon.policies.latency.latency_parameters import LatencyParameters
from trilithon.recording.files import load_recording
from trilithon.scenarios.run import simulate
from trilithon.scenarios.scenario import load_scenario

# Eight testers are far too many at first; the load triples after 75 s.
SCENARIO = """
name: steps
machines: {count: 6, cores: 8}
engine: spark-rtm
way: events
length: 150 s
warm_up: 10 s
round: 5 s
cool_down: 0 s
seed: 11
policy: {name: latency, parameters: {waiting_share_alone: 0.2}}
jobs:
  - file: primetester
    parallelism: {tester: 8, collect: 1}
    load: {shape: step, rate: 293, peak: 879, period: 75 s}
"""
# As the paper has it: nothing between the policy and the engine.
UNLIMITED = Limits(
    round_s=5, cool_down_s=0, up_factor=1e6, down_factor=0, down_delay_s=0, saturated=1, fresh_s=5
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("latency")
    path = folder / "steps.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    simulate(load_scenario(path), folder / "run", limits=UNLIMITED)
    return folder / "run"


def decisions(run: Path) -> list[dict[str, Any]]:
    lines = (run / "decisions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_promise_is_kept_but_for_the_intervals_of_the_step(run: Path) -> None:
    windows = load_recording(run / "recording.parquet").windows()
    means = [(w.end_s, float(assess_constraints(w).mean_ms[0])) for w in windows]
    judged = [mean for end_s, mean in means if 20 < end_s <= 75 or end_s > 95]
    assert len(judged) > 15
    assert np.mean([mean <= 20 for mean in judged]) >= 0.9


def test_instances_follow_the_load(run: Path) -> None:
    """293 and 879 records/s of 2.56 ms keep 0.75 and 2.25 testers busy."""
    snapshots = load_recording(run / "recording.parquet").snapshots
    count = {s.time_s: s.job("papers/primetester").parallelism["tester"] for s in snapshots}
    assert count[75] == 2
    assert 3 <= count[150] <= 6


def test_a_scale_down_that_was_too_bold_is_not_made_again(run: Path) -> None:
    """The model takes arrivals at one tester to be as regular as at eight, which get every eighth
    record in turn: the first prediction is far too low. What was measured with one tester keeps the
    policy from going back there as long as the load is the same.
    """
    checked = [d for d in decisions(run) if d["reason"] == messages.PREDICTION]
    assert checked[0]["numbers"]["tester.error"] > LatencyParameters().error_bound
    alone = [d for d in checked if d["numbers"]["tester.instances"] == 1]
    assert len(alone) == 1
