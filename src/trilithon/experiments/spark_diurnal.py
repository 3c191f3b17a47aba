"""Runs two days of a trace in twenty minutes on Spark: five jobs, once under each policy."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from trilithon.engines.spark.application import Setup
from trilithon.experiments.paper import SparkComparison
from trilithon.experiments.spark_results import SparkRunResult
from trilithon.experiments.tenants import (
    TENANTS,
    TenantJob,
    TenantLoad,
    UtilitySample,
    jobs,
    load_generators,
    max_utility,
    rules,
    slots,
)
from trilithon.model.mode import Mode
from trilithon.service.system import RunningSystem, running_system
from trilithon.workloads import trace

MASTER: Final = "local[128]"
HOURS: Final = 48
LENGTH_S: Final = 1200.0
# The first minute belongs to the JVM, which compiles what it runs.
WARM_S: Final = 60.0
SAMPLE_S: Final = 1.0
# A few spare slots, and mean loads whose peaks need more than the jobs begin with.
SPARE_SLOTS: Final = 4
MEAN_RATES: Final = {
    "pageload": 90.0,
    "linear": 100.0,
    "processing": 80.0,
    "wordcount": 45.0,
    "primetester": 40.0,
}
# The policy that never acts.
NONE: Final = "none"
Progress = Callable[[str], None]


def trace_loads(length_s: float, tenants: Sequence[TenantJob] = TENANTS) -> list[TenantLoad]:
    """Two days of a trace for each tenant; neighbours have different traces."""
    names = trace.names()
    return [
        TenantLoad(
            tenant,
            {
                "rate": MEAN_RATES[tenant.file],
                "shape": "trace",
                "trace": names[i % len(names)],
                "period": f"{length_s / HOURS:g}s",
            },
        )
        for i, tenant in enumerate(tenants)
    ]


def run_comparison(
    comparison: SparkComparison, progress: Progress, length_s: float = LENGTH_S
) -> list[SparkRunResult]:
    results = []
    for policy in comparison.policies:
        result = run_policy(policy, comparison, progress, length_s)
        results.append(result)
        share = 100 * result.satisfaction
        progress(f"{policy}: {share:.1f} % of the utility, {result.actions} actions")
    return results


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
        setup = Setup(MASTER, folder / "spark", slots=slots() + SPARE_SLOTS)
        with running_system(setup, jobs(), acting, folder, progress) as system:
            steady = [TenantLoad(t, {"rate": MEAN_RATES[t.file]}) for t in TENANTS]
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
