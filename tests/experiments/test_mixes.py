"""Random mixes: drawn from their seeds alone, and ranked by who is ahead."""

import pytest

from trilithon.experiments import suite
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.mixes import FIRST_SEED, MixResult, random_mix, rank
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.scenarios.chosen import load_chosen
from trilithon.scenarios.scenario import Scenario


def drawn(seed: int) -> Scenario:
    return random_mix(seed, ScenarioBuilder(load_chosen(), PAPER.name), PAPER.mixed_topologies)


def test_a_mix_is_its_seeds_alone() -> None:
    assert repr(drawn(3)) == repr(drawn(3))
    mixes = [drawn(seed) for seed in range(8)]
    assert len({repr(mix.jobs) for mix in mixes}) == 8
    sizes = [len(mix.jobs) for mix in mixes]
    assert min(sizes) >= 3
    assert max(sizes) <= 10


def test_ranks_count_who_is_ahead() -> None:
    mixes = []
    for seed in range(20):
        worst = 0.1 + 0.02 * seed
        satisfaction = {
            "henge": worst + 0.2,
            "uncontrolled": worst,
            "manual": worst + 0.1,
            "best static": worst + 0.201,
        }
        mixes.append(MixResult(FIRST_SEED + seed, 3, 2, satisfaction))
    ranking = rank(mixes)
    ranks = {"henge": 1.0, "best static": 1.0, "manual": 3.0, "uncontrolled": 4.0}
    assert ranking.rank == ranks
    assert ranking.better["henge", "manual"] == 20
    assert ranking.same["henge", "best static"] == 20


def test_mixes_that_were_run_are_kept_and_the_others_are_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run: list[int] = []

    def mix(_paper: str, seed: int, _chosen: object) -> MixResult:
        run.append(seed)
        return MixResult(seed, 3, 2, {"henge": 0.5})

    monkeypatch.setattr(suite, "_mix", mix)
    monkeypatch.setattr(suite, "MIXES_AT_ONCE", 2)
    kept = [MixResult(FIRST_SEED + 1, 3, 2, {"henge": 0.25})]
    lists = list(suite.run_mixes(PAPER, 1, lambda _: None, load_chosen(), kept, 4))
    assert run == [FIRST_SEED, FIRST_SEED + 2, FIRST_SEED + 3]
    assert [len(mixes) for mixes in lists] == [3, 4]
    assert [mix.seed for mix in lists[-1]] == list(range(FIRST_SEED, FIRST_SEED + 4))
    assert lists[-1][1] is kept[0]
