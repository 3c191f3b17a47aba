"""The policy on a simulated job, and once more offline on the recording of that run."""

from pathlib import Path

from trilithon.control.replay import replay
from trilithon.plugins import policy
from trilithon.scenarios.run import simulate
from trilithon.scenarios.scenario import load_scenario

SCENARIO = Path(__file__).with_name("overload.yaml")


def test_a_busy_operator_gets_an_instance_before_anybody_is_held_back(tmp_path: Path) -> None:
    result = simulate(load_scenario(SCENARIO), record=tmp_path / "rounds")
    [job] = result.engine.jobs().values()
    assert job.allocation.parallelism["third"] == 9
    rounds = list(replay(tmp_path / "rounds", policy("dhalion", {"health": "headroom"})))
    assert all(round_.same for round_ in rounds)
    reasons = [decision.reason for round_ in rounds for decision in round_.decisions]
    assert "DIAGNOSIS_LITTLE_HEADROOM" in reasons
    assert "SYMPTOM_BACK_PRESSURE" not in reasons
