"""Stored runs: each is simulated once, and is the same run wherever it comes from."""

import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from trilithon.experiments import runner as runner_module
from trilithon.experiments.definition import JobSet, Topology, Variant, latency
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.provenance import run_bits
from trilithon.experiments.run_store import RunStore, scenario_key
from trilithon.experiments.runner import Runner
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.strategies import BEST_STATIC, MANUAL, UNCONTROLLED
from trilithon.scenarios.chosen import load_chosen
from trilithon.scenarios.run import simulate as simulate_scenario
from trilithon.scenarios.scenario import Scenario

BUILDER = ScenarioBuilder(load_chosen(), PAPER.name)


def scenario(first: int = 1) -> Scenario:
    """Two jobs on machines that are too small for both, for five minutes."""
    instances = (("third", first),)
    jobs = JobSet("t", 2, Topology.LINEAR, latency(60), (5,), instances=instances)
    experiment = replace(PAPER.by_name["priorities"], duration_s=300, policy_from_s=100)
    return BUILDER.scenario(experiment, Variant(f"from-{first}", (jobs,), 2, 4))


def runner(store: RunStore) -> Runner:
    return Runner(BUILDER, PAPER.policy, most_tried=4, seeds=(90, 91), store=store)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the scenarios that were simulated, coarse runs of a search apart."""
    names: list[str] = []
    simulate = simulate_scenario

    def counted(run: Scenario, **more: object) -> object:
        names.append(run.name)
        return simulate(run, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(runner_module, "simulate", counted)
    return names


def test_a_result_is_computed_once_for_all_stores_of_a_folder(tmp_path: Path) -> None:
    computed: list[int] = []

    def compute() -> int:
        computed.append(1)
        return 7

    folder = tmp_path / "runs"
    assert RunStore(folder).get(("a", 1), compute) == 7
    assert RunStore(folder).get(("a", 1), compute) == 7
    assert len(computed) == 1
    RunStore(folder).get(("a", 2), compute)
    assert len(computed) == 2
    assert len(list(folder.iterdir())) == 2


def test_what_cannot_be_read_or_written_is_computed(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.get("a", lambda: 7)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:5])
    assert store.get("a", lambda: 8) == 8
    # Of a version that had a class which is gone.
    file.write_bytes(zlib.compress(b"ctrilithon.experiments.runs\nRunOfBefore\n."))
    assert store.get("a", lambda: 8) == 8
    assert store.get("a", lambda: 9) == 8
    store.clear()
    assert not tmp_path.exists()
    # The folder is gone, as on a disk that is full.
    assert [store.get("a", lambda: 9), store.get("a", lambda: 10)] == [9, 10]
    not_a_folder = tmp_path.with_suffix(".txt")
    not_a_folder.write_text("", encoding="utf-8")
    in_memory = RunStore(not_a_folder / "runs")
    assert [in_memory.get("a", lambda: 1), in_memory.get("a", lambda: 2)] == [1, 1]


def test_names_do_not_make_another_run_and_everything_else_does() -> None:
    one = scenario()
    assert scenario_key(one) == scenario_key(replace(one, name="x", about="y"))
    assert scenario_key(one) != scenario_key(replace(one, seed=5))
    assert scenario_key(one) != scenario_key(scenario(first=2))


def test_the_best_static_allocation_takes_over_the_runs_of_other_strategies(
    simulated: list[str], tmp_path: Path
) -> None:
    alone = runner(RunStore()).run_seeds(scenario(), BEST_STATIC, {})
    assert len(simulated) == 3  # where the policy ends, and a run per seed
    simulated.clear()
    first = runner(RunStore(tmp_path))
    policy, _ = first.run_seeds(scenario(), PAPER.policy, {})
    manual, _ = first.run_seeds(scenario(), MANUAL, {})
    assert len(simulated) == 4
    best = runner(RunStore(tmp_path)).run_seeds(scenario(), BEST_STATIC, {})
    assert list(map(run_bits, best)) == list(map(run_bits, alone))
    assert len(simulated) in {4, 6}  # 4 if the manual one is the best
    assert [run.strategy for run in (policy, manual, *best)] == [
        PAPER.policy.name,
        "manual",
        "best static",
        "best static",
    ]


def test_variants_share_what_does_not_begin_with_their_first_allocation(
    simulated: list[str],
) -> None:
    every = runner(RunStore())
    one, _ = every.run_seeds(scenario(first=1), MANUAL, {})
    two, _ = every.run_seeds(scenario(first=2), MANUAL, {})
    assert simulated == [one.name] * 2
    assert [one.name, two.name] == ["priorities from-1", "priorities from-2"]
    assert run_bits(one) == run_bits(two)
    every.run_seeds(scenario(first=2), UNCONTROLLED, {})
    assert len(simulated) == 4


def test_parameters_of_a_policy_make_another_run(simulated: list[str]) -> None:
    every = runner(RunStore())
    for reduction in (0.7, 0.7, 0.8):
        every.run_seeds(scenario(), PAPER.policy, {"reduction": reduction})
    assert len(simulated) == 4
