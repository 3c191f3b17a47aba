"""Random mixes: drawn from their seeds alone, and ranked by who is ahead."""

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
