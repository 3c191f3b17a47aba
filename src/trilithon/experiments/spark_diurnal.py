"""Runs a day of a trace in ten minutes on Spark: five jobs, three times under each policy in turn.

An hour of the traces takes 25 s, longer than the windows by which the policies decide: at a higher
speed a policy would decide on the load of the hour before.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from trilithon import policies
from trilithon.engines import spark
from trilithon.engines.spark.application import Setup
from trilithon.experiments import diurnal_loads, tenants
from trilithon.experiments.diurnal_loads import mean_rates, scarce_slots, trace_of
from trilithon.experiments.paper import SparkComparison
from trilithon.experiments.provenance import code_of, digest
from trilithon.experiments.spark_results import NONE, SparkRunResult
from trilithon.experiments.tenants import (
    TENANTS,
    TenantJob,
    TenantLoad,
    UtilitySample,
    jobs,
    load_generators,
    max_utility,
    rules,
)
from trilithon.model.mode import Mode
from trilithon.service.system import RunningSystem, running_system

MASTER: Final = "local[128]"
HOURS: Final = 24
LENGTH_S: Final = 600.0
RUNS: Final = 3
# The first minute belongs to the JVM, which compiles what it runs.
WARM_S: Final = 60.0
SAMPLE_S: Final = 1.0
Progress = Callable[[str], None]


def comparison_made_by() -> str:
    """What the runs are made by: the set-up, the policies and the engine. Runs are compared with
    each other, so an interrupted comparison goes on with those of the same code alone.
    """
    modules = (diurnal_loads, tenants, policies, spark)
    return digest(*map(code_of, modules), repr((MASTER, HOURS, LENGTH_S, WARM_S, SAMPLE_S)))


def trace_loads(length_s: float, owners: Sequence[TenantJob] = TENANTS) -> list[TenantLoad]:
    """A day of a trace for each tenant; neighbours have different traces."""
    rates = mean_rates(owners)
    return [
        TenantLoad(
            tenant,
            {
                "rate": rates[tenant.file],
                "shape": "trace",
                "trace": trace_of(i),
                "period": f"{length_s / HOURS:g}s",
            },
        )
        for i, tenant in enumerate(owners)
    ]


def run_comparison(
    comparison: SparkComparison,
    progress: Progress,
    made_by: str = "",
    kept: Sequence[SparkRunResult] = (),
    *,
    runs: int = RUNS,
    length_s: float = LENGTH_S,
) -> Iterator[list[SparkRunResult]]:
    """Runs each policy several times, in turn, so that what the machine does meanwhile falls on
    all alike. Yields all results so far after each run; those that are `kept` are not run again.
    """
    results = list(kept)
    done = {(run.policy, run.turn) for run in kept}
    for turn in range(runs):
        for policy in comparison.policies:
            if (policy, turn) in done:
                continue
            result = run_policy(policy, comparison, progress, length_s)
            results.append(replace(result, turn=turn, made_by=made_by))
            share = 100 * result.satisfaction
            progress(f"{policy}, run {turn + 1}: {share:.1f} %, {result.actions} actions")
            yield list(results)
    if not results or len(results) == len(kept):
        yield results


def run_policy(
    policy: str,
    comparison: SparkComparison,
    progress: Progress,
    length_s: float,
    warm_s: float = WARM_S,
) -> SparkRunResult:
    """One run, from the start of Spark to its end. No policy acts while the JVM warms up."""
    # The controller must be given a policy, even if it never acts.
    others = [name for name in comparison.policies if name != NONE]
    named = others[-1] if policy == NONE else policy
    acting = rules(named, comparison.parameters[named], Mode.OFF)
    with tempfile.TemporaryDirectory(prefix="trilithon-diurnal-") as name:
        folder = Path(name)
        setup = Setup(MASTER, folder / "spark", slots=scarce_slots())
        with running_system(setup, jobs(), acting, folder, progress) as system:
            rates = mean_rates()
            steady = [TenantLoad(t, {"rate": rates[t.file]}) for t in TENANTS]
            with load_generators(system.kafka, steady, warm_s):
                _sample(system, warm_s, lambda s: progress(f"{policy}: warming up, {s:.0f} s"))
            if policy != NONE:
                for job in jobs():
                    system.daemon.commands.mode(job.id, Mode.AUTO)
            began_s = time.time()
            with load_generators(system.kafka, trace_loads(length_s), length_s):
                samples = _sample(
                    system, length_s, lambda s: progress(f"{policy}: {s:.0f} of {length_s:.0f} s")
                )
            granted = [decision for decision in system.decided(began_s) if decision.granted]
    return spark_run_result(policy, samples, len(granted), length_s)


def _sample(
    system: RunningSystem, for_s: float, progress: Callable[[float], None]
) -> list[UtilitySample]:
    began = time.monotonic()
    samples: list[UtilitySample] = []
    while (passed := time.monotonic() - began) < for_s:
        samples.append(UtilitySample.of(passed, system.look(), max_utility()))
        progress(passed)
        time.sleep(SAMPLE_S)
    return samples


def spark_run_result(
    policy: str, samples: Sequence[UtilitySample], actions: int, length_s: float
) -> SparkRunResult:
    shares = np.array([sample.satisfaction for sample in samples])
    hours = np.array([int(sample.at_s * HOURS / length_s) for sample in samples])
    by_job: dict[str, list[float]] = {}
    for sample in samples:
        for job in sample.jobs:
            share = (job.get("utility") or 0.0) / (job.get("max_utility") or 1.0)
            by_job.setdefault(job["job"], []).append(share)
    return SparkRunResult(
        policy,
        float(shares.mean()),
        float(np.percentile(shares, 10)),
        actions,
        {name: float(np.mean(values)) for name, values in by_job.items()},
        [float(shares[hours == hour].mean()) for hour in np.unique(hours)],
    )
