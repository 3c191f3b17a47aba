"""A simulated cluster in real time: the machine's clock moves it, and added jobs have a load."""

from dataclasses import replace

from tests.cluster import chain
from trilithon.contract.engine import Status
from trilithon.engines.simulated.live import LiveSimulation
from trilithon.model.allocation import initial
from trilithon.scenarios.live import SHOWCASE, live_rules
from trilithon.scenarios.run import engine_for
from trilithon.scenarios.scenario import load_scenario

BEGAN_S = 1_700_000_000.0


class Wall:
    """A machine's clock that is set by hand."""

    def __init__(self) -> None:
        self.at_s = 50.0

    def __call__(self) -> float:
        return self.at_s


def live(speed: float = 1.0, load_per_s: float = 0.0) -> tuple[LiveSimulation, Wall]:
    wall = Wall()
    engine = engine_for(load_scenario(SHOWCASE))
    return (
        LiveSimulation(engine, began_s=BEGAN_S, speed=speed, load_per_s=load_per_s, wall_s=wall),
        wall,
    )


def test_its_time_passes_with_the_machines_clock_and_as_fast_as_wanted() -> None:
    cluster, wall = live(speed=5.0)
    assert cluster.now_s() == BEGAN_S
    wall.at_s += 4.0
    assert cluster.now_s() == BEGAN_S + 20.0
    assert {report.time_s for report in cluster.reports()} == {BEGAN_S + 20.0}
    wall.at_s -= 3.0  # a clock may be set back: the cluster's time is not
    assert cluster.now_s() == BEGAN_S + 20.0


def test_the_jobs_of_the_scenario_run_and_take_their_load() -> None:
    cluster, wall = live()
    assert len(cluster.jobs()) == 5
    wall.at_s += 10.0
    (host, *_) = cluster.reports()
    assert host.sources.arrived.min() > 1000


def test_a_job_that_is_added_has_the_load_for_added_jobs_and_keeps_it_over_a_pause() -> None:
    cluster, wall = live(load_per_s=40.0)
    job = chain(most=2)
    assert cluster.submit(job, initial(job)).status is Status.DONE
    wall.at_s += 10.0
    row = cluster.reports()[0].source_keys.index((job.id, "in"))
    assert abs(cluster.reports()[0].sources.arrived[row] - 400) <= 80
    assert cluster.cancel(job.id, keep=True).status is Status.DONE
    assert job.id not in cluster.conditions()
    wall.at_s += 5.0
    assert cluster.submit(job, replace(initial(job), generation=2)).status is Status.DONE
    wall.at_s += 5.0
    row = cluster.reports()[0].source_keys.index((job.id, "in"))
    # Those of the pause are there, too.
    assert cluster.reports()[0].sources.arrived[row] > 300


def test_the_rules_of_a_live_scenario_have_its_policy_and_without_one_only_observe() -> None:
    scenario = load_scenario(SHOWCASE)
    rules = live_rules(scenario)
    assert (rules.policy, rules.mode.value) == ("henge", "auto")
    assert rules.limits.round_s == scenario.round_s
    assert live_rules(replace(scenario, policy=None)).mode.value == "off"
