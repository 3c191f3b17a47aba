"""Scenarios: what is read, what is refused and where, what a run leaves behind."""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.fakes import FakePolicy
from trilithon.cli.main import app
from trilithon.control.guard import Ruling
from trilithon.control.journal import PlannedAction
from trilithon.control.planner import Planner
from trilithon.control.replay import replay
from trilithon.control.rules import Limits
from trilithon.engines.simulated.character import SPARK_RTM
from trilithon.engines.simulated.faults import MachineCrash
from trilithon.errors import FileExists, InvalidLoad, InvalidScenario
from trilithon.model.change import ParallelismChange
from trilithon.policies.decision import Decision
from trilithon.policies.layered import LayeredPolicy
from trilithon.policies.policy import State, Verdict, decision_id
from trilithon.policies.registry import policy as make_policy
from trilithon.policies.scene import Scene
from trilithon.recording.files import load_recording
from trilithon.scenarios.chosen import load_chosen
from trilithon.scenarios.rounds import ControlledRounds, DecisionResult
from trilithon.scenarios.run import engine_for, simulate
from trilithon.scenarios.scenario import load_scenario
from trilithon.workloads.paper_jobs import TOPOLOGIES, topology_names
from trilithon.workloads.shapes import Phases

ROOT = Path(__file__).resolve().parent.parent.parent
SHIPPED = sorted((ROOT / "scenarios").glob("*.yaml"))
SMALL = """
name: small
machines: {count: 3, cores: 4}
length: 5 minutes
warm_up: 30 s
cool_down: 30 s
seed: 3
policy: {name: threshold}
jobs:
  - file: pageload
    load: {shape: step, rate: 200, peak: 600, period: 60 s}
  - {file: linear, count: 2, parallelism: {all: 1, third: 3}, load: {rate: 50}}
faults:
  - {kind: machine_crash, machine: m2, at: 3 minutes, for: 60 s}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_runs_and_its_numbers_are_chosen_in_one_file(path: Path) -> None:
    scenario = load_scenario(path)
    for scheduled in scenario.jobs:
        names = set(load_chosen().common.profiles[scheduled.job.name])
        assert names == {operator.name for operator in scheduled.job.operators}
        for operator in scheduled.job.operators:
            assert operator.profile is not None
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"service|\b(rate|peak|calm|burst|steps|period):", text)
    short = scenario.__class__(**{**vars(scenario), "length_s": 60.0, "faults": ()})
    result = simulate(short)
    for row in result.figures.summary():
        assert row["throughput"] > 0


def test_every_job_of_the_papers_has_a_scenario() -> None:
    jobs = {scheduled.job.name for path in SHIPPED for scheduled in load_scenario(path).jobs}
    assert jobs == set(topology_names()) - {"join"}


def test_a_scenario_uses_the_chosen_numbers_of_its_paper_before_defaults(tmp_path: Path) -> None:
    def phases(load: str, paper: str = "paper: latency") -> Phases:
        text = f"""
name: steps
{paper}
machines: {{count: 2}}
length: 60 s
jobs: [{{file: primetester, load: {load}}}]
"""
        (job,) = load_scenario(written(tmp_path, text)).jobs
        (shape,) = job.loads.values()
        assert isinstance(shape, Phases)
        return shape

    rate = load_chosen().common.rates["primetester"]
    peak = load_chosen().papers["latency"].loads["primetester"].peak
    assert phases("{shape: phases}").peak_per_s == peak
    assert phases("{shape: phases, peak: 50000}").peak_per_s == 50000
    assert phases("{shape: phases}", paper="").peak_per_s == 3 * rate
    with pytest.raises(InvalidScenario, match="no part 'nephele'"):
        phases("{shape: phases}", "paper: nephele")


def test_a_run_leaves_a_recording_decisions_a_page_and_a_summary(tmp_path: Path) -> None:
    scenario = load_scenario(written(tmp_path, SMALL))
    folder = tmp_path / "run"
    result = simulate(scenario, folder)
    series = load_recording(folder / "recording.parquet")
    assert len(series) == 30
    assert series.last.time_s == 300
    lines = (folder / "decisions.jsonl").read_text(encoding="utf-8").splitlines()
    decisions = [json.loads(row) for row in lines]
    assert decisions
    assert {"reason", "sentence", "numbers", "changes", "outcomes"} <= set(decisions[0])
    assert any(row["outcomes"] for row in decisions)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert [job["job"] for job in summary["jobs"]] == [
        "papers/pageload",
        "papers/linear-0",
        "papers/linear-1",
    ]
    assert summary["jobs"] == result.figures.summary()
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "uPlot" in page
    assert not re.search(r"(src|href)=|@[A-Z]+@|fetch\(", page)
    with pytest.raises(FileExists):
        simulate(scenario, folder)


def test_the_same_scenario_gives_the_same_bytes(tmp_path: Path) -> None:
    scenario = load_scenario(written(tmp_path, SMALL))
    for name in ("one", "two"):
        simulate(scenario, tmp_path / name)
    for part in ("decisions.jsonl", "report.html", "summary.json", "recording.parquet"):
        first, second = ((tmp_path / name / part).read_bytes() for name in ("one", "two"))
        assert first == second


def test_a_job_file_beside_the_scenario_comes_before_a_shipped_one(tmp_path: Path) -> None:
    own = (TOPOLOGIES / "pageload-topology.yaml").read_text(encoding="utf-8")
    (tmp_path / "pageload").write_text(
        own.replace("tenant: papers", "tenant: mine"), encoding="utf-8"
    )
    assert [scheduled.job.tenant for scheduled in load_scenario(written(tmp_path, SMALL)).jobs] == [
        "mine",
        "papers",
        "papers",
    ]


def test_a_scenario_says_everything_that_a_run_needs(tmp_path: Path) -> None:
    text = SMALL + "engine: spark-rtm\nway: events\narrivals: even\n"
    scenario = load_scenario(written(tmp_path, text))
    assert scenario.character is SPARK_RTM
    assert scenario.way == "events"
    assert scenario.arrival_cv2 == 0.0
    assert [m.cores for m in scenario.machines] == [4, 4, 4]
    assert scenario.faults == (MachineCrash(180, 60, "m2"),)
    assert scenario.policy is not None
    linear = scenario.jobs[1].job
    assert {o.name: o.parallelism.initial for o in linear.operators} == {
        "first": 1,
        "second": 1,
        "third": 3,
        "fourth": 1,
    }


@pytest.mark.parametrize(
    ("change", "line", "code"),
    [
        (("cores: 4", "cores: -4"), 3, "BAD_VALUE"),
        (("seed: 3", "sede: 3"), 7, "UNKNOWN_FIELD"),
        (("5 minutes", "five"), 4, "BAD_VALUE"),
        (("rate: 200", "rate: -1"), 11, "BAD_VALUE"),
        (("rate: 200", "rate: many"), 11, "BAD_VALUE"),
        (("machine: m2", "machine: m9"), 14, "NOT_FOUND"),
        (("name: threshold", "name: wisdom"), 8, "NOT_FOUND"),
        (("third: 3", "thrid: 3"), 12, "NOT_FOUND"),
        (("shape: step", "shape: trace"), 11, "BAD_LOAD"),
        (("count: 3,", "count: 3, kind: tiny,"), 3, "NOT_FOUND"),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else str(value),
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, change: tuple[str, str], line: int, code: str
) -> None:
    with pytest.raises(InvalidScenario) as refused:
        load_scenario(written(tmp_path, SMALL.replace(*change)))
    [problem] = refused.value.problems
    assert (problem.code, problem.line) == (code, line)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("job: papers/nobody, operator: join", "no job 'papers/nobody'"),
        ("operator: join", "no job None"),
        ("job: papers/pageload, operator: joyn", "no operator 'joyn'"),
        ("job: papers/pageload, operator: join, index: 99", "no instance 99"),
    ],
)
def test_a_slow_instance_that_there_is_not_is_refused_before_anything_runs(
    tmp_path: Path, named: str, said: str
) -> None:
    text = f"{SMALL}  - {{kind: slow_instance, at: 60 s, {named}}}\n"
    with pytest.raises(InvalidScenario, match=said) as refused:
        load_scenario(written(tmp_path, text))
    [problem] = refused.value.problems
    assert (problem.code, problem.line) == ("NOT_FOUND", 15)


@pytest.mark.parametrize(
    ("rows", "line"),
    [("0,5\n1,6\n3,7\n", 4), ("0,5\n1,-6\n", 3), ("0,5\n1,6\n2,lots\n", 4)],
    ids=["gap", "negative", "text"],
)
def test_a_load_file_that_is_wrong_is_refused_with_its_line(
    tmp_path: Path, rows: str, line: int
) -> None:
    (tmp_path / "load.csv").write_text(f"hour,requests\n{rows}", encoding="utf-8")
    text = SMALL.replace(
        "{shape: step, rate: 200, peak: 600, period: 60 s}", "{shape: trace, trace: load.csv}"
    )
    with pytest.raises(InvalidLoad, match=rf"load.csv:{line}: "):
        load_scenario(written(tmp_path, text))


def test_the_command_prints_a_summary_and_names_the_folder(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL)
    into = tmp_path / "run"
    done = CliRunner().invoke(app, ["simulate", str(path), "--into", str(into), "-o", "json"])
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    assert data["folder"] == str(into)
    assert 0 <= data["satisfaction"] <= 1
    again = CliRunner().invoke(app, ["simulate", str(path), "--into", str(into), "--force"])
    assert again.exit_code == 0
    assert "papers/pageload" in again.stdout
    strange = CliRunner().invoke(app, ["simulate", str(path), "--way", "magic"])
    assert strange.exit_code == 2


class Slow(FakePolicy):
    """Wants rounds of half a minute, and notes when it is asked."""

    name = "slow"
    lookback_s = 60.0

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def decide(self, scene: Scene, state: State) -> Verdict:
        self.times_s.append(scene.now_s)
        return Verdict((), state, next_round_s=30.0)


def test_a_simulated_run_keeps_to_the_rounds_that_its_policy_wants(tmp_path: Path) -> None:
    policy = Slow()
    scenario = replace(load_scenario(written(tmp_path, SMALL)), policy=policy)
    result = simulate(scenario)
    # The last round comes when the run ends.
    waits = [round(b - a, 6) for a, b in pairwise(policy.times_s)][:-1]
    assert set(waits) == {30.0}
    # The first round has one snapshot, and so no window to measure.
    assert len(result.figures.times_s) == len(policy.times_s) - 1


def test_a_simulated_run_is_recorded_and_decided_again(tmp_path: Path) -> None:
    scenario = load_scenario(written(tmp_path, SMALL))
    simulate(scenario, record=tmp_path / "rounds")
    rounds = list(replay(tmp_path / "rounds", make_policy("threshold")))
    assert len(rounds) == 30
    assert all(replayed.same for replayed in rounds)
    assert any(replayed.decisions for replayed in rounds)


class Wishes(FakePolicy):
    """Asks in every round for what no guard grants."""

    def __init__(self, name: str) -> None:
        self.name = name

    def decide(self, scene: Scene, state: State) -> Verdict:
        job = min(scene.statuses)
        wish = ParallelismChange(job, {"nothing": 2})
        decision = Decision(decision_id(scene, job), job, (wish,), self.name, "It must.")
        return Verdict((decision,), state)


def test_a_refused_wish_is_shown_once_also_if_policies_are_layered(tmp_path: Path) -> None:
    """Two policies with different wishes about a job were news for each other, in every round."""
    policy = LayeredPolicy(
        (
            Wishes("first"),
            Wishes("second"),
        )
    )
    scenario = replace(load_scenario(written(tmp_path, SMALL)), policy=policy, length_s=120.0)
    folder = tmp_path / "run"
    simulate(replace(scenario, warm_up_s=0.0), folder)
    lines = (folder / "decisions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    settled = [row["reason"] for row in rows if row["time_s"] > 60.0]
    assert settled == []
    assert {row["reason"] for row in rows} == {"first", "second"}


def test_outcomes_are_those_of_their_own_decision(tmp_path: Path) -> None:
    """They were paired by position once: a decision whose action
    was left out got the next one's.
    """

    class Two(FakePolicy):
        name = "two"

        def decide(self, scene: Scene, state: State) -> Verdict:
            decisions = []
            for job, status in sorted(scene.statuses.items()):
                name, count = next(iter(status.allocation.parallelism.items()))
                change = ParallelismChange(job, {name: count + 1})
                if status.open:
                    id_ = decision_id(scene, job)
                    decisions.append(Decision(id_, job, (change,), "MORE", "It grows."))
            return Verdict(tuple(decisions), state)

    scenario = replace(load_scenario(written(tmp_path, SMALL)), policy=Two())
    with ControlledRounds(
        engine_for(scenario), Two(), Limits(fresh_s=10.0), 0, tmp_path / "journal"
    ) as rounds:
        controller = rounds._controller
        plan = Planner.plan

        def left_out(planner: Planner, ruling: Ruling) -> list[PlannedAction]:
            first = min(controller.state.jobs)
            return [] if ruling.decision.job == first else plan(planner, ruling)

        acted: list[DecisionResult] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Planner, "plan", left_out)
            for _ in range(6):
                rounds._engine.advance(10.0)  # type: ignore[attr-defined]
                acted += rounds.round()
        first = min(controller.state.jobs)
        assert {result.decision.job for result in acted if result.outcomes} == set(
            controller.state.jobs
        ) - {first}


def test_slots_for_a_job_that_comes_later_are_kept_free_until_it_does(tmp_path: Path) -> None:
    text = """
name: late
machines: {count: 2, cores: 4}
length: 3 minutes
slots: 10
jobs:
  - {file: linear, name: early, parallelism: {all: 1}, load: {rate: 10}}
  - {file: linear, name: late, parallelism: {all: 1}, load: {rate: 10}, start: 60 s}
"""
    engine = engine_for(load_scenario(written(tmp_path, text)))
    assert engine.capabilities().slots == 6
    engine.advance(59.0)
    assert len(engine.jobs()) == 1
    engine.advance(2.0)
    assert len(engine.jobs()) == 2
    assert engine.capabilities().slots == 10


def test_bursty_arrivals_have_the_chosen_variation_and_the_seed_moves_them(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL + "arrivals: bursty\n")
    shape = load_chosen().common.arrivals.shape
    assert load_scenario(path).arrival_cv2 == pytest.approx(math.expm1(shape**2))
    arrived = set()
    for seed in (1, 2):
        engine = engine_for(load_scenario(path, seed))
        engine.advance(30.0)
        arrived.add(float(engine.world.nodes["arrived"].sum()))
    assert len(arrived) == 2
