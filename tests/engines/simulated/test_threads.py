"""What threads cost: a part of a core each, idle or not, and a switch where they take turns."""

from dataclasses import replace

import pytest

from tests.engines.simulated.watched import both, watched
from tests.engines.simulated.worlds import TEXTBOOK, line, operator
from trilithon.contract.engine import Reallocate
from trilithon.engines.simulated.character import SPARK_RTM, Character
from trilithon.engines.simulated.engine import SimulationMode
from trilithon.model.job import Job
from trilithon.model.profile import Distribution

STEADY = Distribution.DETERMINISTIC
# It can use a core and more: what it gets through is what the machine has left.
HUNGRY = line(
    operator("first", 2, service_ms=10.0, cpu_share=1.0, distribution=STEADY),
    operator("idle", 8, service_ms=0.0, distribution=STEADY),
)


def engine_with(thread_cores: float = 0.0, switch_s: float = 0.0) -> Character:
    return replace(TEXTBOOK, thread_cores=thread_cores, switch_s=switch_s)


def throughput_per_s(mode: SimulationMode, character: Character, job: Job = HUNGRY) -> float:
    """Records per second through a job that is offered more than one core can do."""
    run = watched(mode, character, job, rate=200.0, machines=1, cores=1.0)
    run.look(20)
    before = run.series.last.sinks.written.sum()
    run.look(40)
    return float(run.series.last.sinks.written.sum() - before) / 40


@both
def test_threads_that_do_nothing_take_cores_from_those_that_compute(mode: SimulationMode) -> None:
    """Ten threads of a fiftieth of a core each leave four fifths of the one core there is."""
    assert throughput_per_s(mode, engine_with()) == pytest.approx(100, rel=0.02)
    assert throughput_per_s(mode, engine_with(thread_cores=0.02)) == pytest.approx(80, rel=0.02)


@both
def test_threads_that_take_turns_pay_for_the_switches(mode: SimulationMode) -> None:
    """Two threads on one core: turns of 9 ms, of which a switch of 1 ms takes a tenth."""
    found = throughput_per_s(mode, engine_with(switch_s=0.001))
    assert found == pytest.approx(100 / (1 + 1 / 9), rel=0.02)


@both
def test_a_machine_reports_its_idle_threads_as_load(mode: SimulationMode) -> None:
    run = watched(mode, engine_with(thread_cores=0.05), HUNGRY, rate=0.001, machines=1)
    assert run.look(10).machines.load[0] == pytest.approx(10 * 0.05, abs=0.01)


@both
def test_more_instances_cost_more_and_fewer_less(mode: SimulationMode) -> None:
    run = watched(mode, engine_with(thread_cores=0.05), HUNGRY, rate=0.001, machines=1)
    allocation = run.engine.jobs()[HUNGRY.id].allocation
    run.engine.apply(Reallocate(allocation.rescaled({"idle": 2}).next_generation()))
    assert run.look(10).machines.load[0] == pytest.approx(4 * 0.05, abs=0.01)
    run.engine.cancel(HUNGRY.id)
    assert run.engine.world.machines["overhead"][0] == 0


@both
def test_spark_holds_threads_for_tasks_that_are_not_in_use(mode: SimulationMode) -> None:
    """Eight tasks of each of two operators, on two machines: eight threads on each."""
    spark = replace(SPARK_RTM, thread_cores=0.05, constant_load=0.0)
    job = line(operator("a", 1, service_ms=0.1), operator("b", 1, service_ms=0.1))
    run = watched(mode, spark, job, rate=0.001, machines=2)
    loads = run.look(5).machines.load
    assert loads.tolist() == pytest.approx([8 * 0.05] * 2, abs=0.01)
