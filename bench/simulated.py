"""What the simulated cluster costs: hours of many jobs in seconds,
events per second, SimPy beside it.

python -m bench.simulated            all of it
python -m bench.simulated --quick    an hour of ten jobs, fewer events
"""

import argparse
import resource
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from trilithon.engines.simulated import world_tables
from trilithon.engines.simulated.character import storm
from trilithon.engines.simulated.event_run import EventRun
from trilithon.engines.simulated.job_rows import add_job, route
from trilithon.model.allocation import initial
from trilithon.model.job import Edge, Job, Operator, Parallelism, Sink, Source
from trilithon.model.profile import Distribution, Profile
from trilithon.policies.registry import policy
from trilithon.scenarios.chosen import assumed_costs, load_chosen
from trilithon.scenarios.run import simulate
from trilithon.scenarios.scenario import Scenario, ScheduledJob, load_scenario
from trilithon.workloads.shapes import Sine

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
SERVICE_S = 0.001


def cluster(jobs: int, machines: int, hours: float, instances: int | None = None) -> Scenario:
    """PageLoads with the load of a day each, on machines of sixteen cores, the threshold policy in
    the loop, a round every half minute.
    """
    base = load_scenario(SCENARIOS / "stela-pageload.yaml")
    job = base.jobs[0].job
    if instances is not None:
        wider = Parallelism(instances, 1, max(32, instances))
        job = replace(job, operators=tuple(replace(o, parallelism=wider) for o in job.operators))
    machine = replace(base.machines[0], cores=16.0)
    fed = tuple(
        ScheduledJob(
            replace(job, name=f"pageload-{i}"),
            0.0,
            {"loads": Sine(200.0 + 5 * i, 500.0 + 5 * i, 3600.0 * 8)},
        )
        for i in range(jobs)
    )
    return replace(
        base,
        name=f"{jobs} jobs",
        machines=tuple(replace(machine, name=f"m{i}") for i in range(machines)),
        jobs=fed,
        faults=(),
        requests=(),
        length_s=hours * 3600,
        round_s=30.0,
        policy=policy("threshold"),
    )


def timed(scenario: Scenario) -> tuple[float, float, int, int]:
    """Seconds on the wall and of CPU, instances at the end, actions."""
    began, used = time.perf_counter(), time.process_time()
    result = simulate(scenario)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - used
    actions = sum(len(acted.outcomes) for acted in result.figures.acted)
    instances = sum(one.allocation.instances for one in result.engine.jobs().values())
    return took_s, cpu_s, instances, actions


def runs(*, quick: bool) -> None:
    simulate(cluster(1, 1, 0.01))  # what is compiled once is not part of a run
    print("\nFlows, 1-s steps, threshold policy, a round every 30 s")
    print(
        f"{'jobs':>5} {'machines':>9} {'hours':>6} {'instances':>10} {'actions':>8} "
        f"{'took s':>8} {'cpu s':>7} {'× real':>9} {'peak MB':>8}"
    )
    sizes = [(10, 10, 1.0)] if quick else [(10, 10, 8.0), (85, 40, 10.0)]
    for jobs, machines, hours in sizes:
        took_s, cpu_s, instances, actions = timed(cluster(jobs, machines, hours))
        print(
            f"{jobs:>5} {machines:>9} {hours:>6g} {instances:>10} {actions:>8} "
            f"{took_s:>8.1f} {cpu_s:>7.1f} "
            f"{hours * 3600 / took_s:>9,.0f} {memory_mb():>8.0f}"
        )
    print("\nGrowth with instances: ten jobs, ten machines, half an hour")
    print(f"{'instances':>10} {'took s':>8} {'µs per instance and step':>25} {'peak MB':>8}")
    for each in (2, 8, 32) if quick else (2, 8, 32, 128, 512):
        scenario = replace(cluster(10, 10, 0.5, each), policy=None)
        took_s, _, instances, _ = timed(scenario)
        each_us = took_s / 1800 / instances * 1e6
        print(f"{instances:>10} {took_s:>8.2f} {each_us:>25.2f} {memory_mb():>8.0f}")


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def queue() -> Job:
    profile = Profile(service_ms=SERVICE_S * 1000, distribution=Distribution.EXPONENTIAL)
    return Job(
        tenant="t",
        name="queue",
        sources=(Source("in", (), (), 1),),
        operators=(Operator("a", parallelism=Parallelism(1, 1, 1), profile=profile),),
        edges=(Edge("in", "a"), Edge("a", "out")),
        sinks=(Sink("out", ()),),
    )


def ours(records: int) -> tuple[float, int]:
    job = queue()
    character = storm(transit_s=0.0, outage_s=0.0, restart_s=0.0)
    assumed = replace(assumed_costs(load_chosen()), cpu_share=0.0)
    machines = world_tables.rows(world_tables.MACHINE, 1, cores=4.0)
    world, rows = add_job(
        world_tables.appended(world_tables.empty(), machines=machines), job, character, assumed
    )
    route(world, job, rows, initial(job), assumed.keys, {})
    run = EventRun(world, 1)
    rates = np.zeros(len(world.nodes))
    rates[rows.nodes["in"]] = 0.8 / SERVICE_S
    run.advance(1.0, rates)
    before = run.events
    began = time.perf_counter()
    run.advance(1.0 + records * SERVICE_S / 0.8, rates)
    return time.perf_counter() - began, run.events - before


def theirs(records: int) -> tuple[float, int]:
    """The same queue in SimPy: a source, a server with one place, exponential times."""
    rng = np.random.default_rng(1)
    environment = simpy.Environment()
    server = simpy.Resource(environment)
    done = [0]

    def record() -> Any:
        with server.request() as mine:
            yield mine
            yield environment.timeout(rng.exponential(SERVICE_S))
        done[0] += 1

    def source() -> Any:
        for _ in range(records):
            yield environment.timeout(rng.exponential(SERVICE_S / 0.8))
            environment.process(record())

    environment.process(source())
    began = time.perf_counter()
    environment.run()
    assert done[0] == records
    return time.perf_counter() - began, 2 * records


def events(*, quick: bool) -> None:
    ours(1000)
    records = 200_000 if quick else 2_000_000
    took_s, count = ours(records)
    rate = count / took_s
    print("\nSingle records: one queue at 0.8 (an arrival and an end of service per record)")
    print(f"  ours   {rate:>12,.0f} events/s  ({count:,} in {took_s:.2f} s)")
    took_s, count = theirs(records // 20)
    print(f"  SimPy  {count / took_s:>12,.0f} events/s  ({count:,} in {took_s:.2f} s)")
    print(f"  ratio  {rate / (count / took_s):>12,.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    events(quick=quick)
    runs(quick=quick)


if __name__ == "__main__":
    main()
