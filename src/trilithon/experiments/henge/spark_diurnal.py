"""Owns two days of a trace in twenty minutes on Spark: five jobs, under Henge, under the threshold policy, and
with nobody in control.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from trilithon.engines.spark.application import Setup
from trilithon.experiments.tenants import (
    TENANTS,
    Look,
    Offered,
    Tenant,
    jobs,
    most_utility,
    offered,
    rules,
    slots,
)
from trilithon.policies.scene import Mode
from trilithon.service.system import RunningSystem, running_system
from trilithon.workloads import trace

MASTER: Final = "local[128]"
POLICIES: Final = ("henge", "threshold", "none")
HOURS: Final = 48
LENGTH_S: Final = 1200.0
# The first minute belongs to the JVM, which compiles what it runs.
WARM_S: Final = 60.0
LOOK_S: Final = 1.0
# A few slots to spare, and mean loads whose peaks need more than the jobs begin with.
SPARE: Final = 4
MEAN: Final = {
    "pageload": 90.0,
    "linear": 100.0,
    "processing": 80.0,
    "wordcount": 45.0,
    "primetester": 40.0,
}
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """What all jobs were worth under a policy: the mean, what nine tenths of the time was exceeded, the mean of each
    job, and the mean in each hour of the traces.
    """

    policy: str
    satisfaction: float
    worst_tenth: float
    actions: int
    by_job: dict[str, float]
    by_hour: list[float] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def loads(length_s: float, tenants: Sequence[Tenant] = TENANTS) -> list[Offered]:
    """A trace to each, two days of it; neighbours have different ones."""
    names = trace.names()
    return [
        Offered(
            tenant,
            {
                "rate": MEAN[tenant.file],
                "shape": "trace",
                "trace": names[i % len(names)],
                "period": f"{length_s / HOURS:g}s",
            },
        )
        for i, tenant in enumerate(tenants)
    ]


def run(tell: Tell, length_s: float = LENGTH_S, policies: Sequence[str] = POLICIES) -> list[Result]:
    found = []
    for policy in policies:
        found.append(one(policy, tell, length_s))
        tell(
            f"{policy}: {100 * found[-1].satisfaction:.1f} % of the utility, {found[-1].actions} actions"
        )
    return found


def one(policy: str, tell: Tell, length_s: float, warm_s: float = WARM_S) -> Result:
    """One run, from the start of Spark to its end. While the JVM warms up nobody acts."""
    found = rules("threshold" if policy == "none" else policy, Mode.OFF)
    with tempfile.TemporaryDirectory(prefix="trilithon-diurnal-") as name:
        folder = Path(name)
        setup = Setup(MASTER, folder / "spark", slots=slots() + SPARE)
        with running_system(setup, jobs(), found, folder, tell) as system:
            steady = [Offered(t, {"rate": MEAN[t.file]}) for t in TENANTS]
            with offered(system.kafka, steady, warm_s):
                _watch(system, warm_s, lambda at_s: tell(f"{policy}: warming up, {at_s:.0f} s"))
            if policy != "none":
                for job in jobs():
                    system.daemon.commands.mode(job.id, Mode.AUTO)
            began_s = time.time()
            with offered(system.kafka, loads(length_s), length_s):
                looks = _watch(
                    system, length_s, lambda at_s: tell(f"{policy}: {at_s:.0f} of {length_s:.0f} s")
                )
            acted = [one for one in system.decided(began_s) if one.granted]
    return _result(policy, looks, len(acted), length_s)


def _watch(system: RunningSystem, for_s: float, tell: Callable[[float], None]) -> list[Look]:
    began, found = time.monotonic(), []
    while (passed := time.monotonic() - began) < for_s:
        found.append(Look.of(passed, system.look(), most_utility()))
        tell(passed)
        time.sleep(LOOK_S)
    return found


def _result(policy: str, looks: Sequence[Look], actions: int, length_s: float) -> Result:
    shares = np.array([look.satisfaction for look in looks])
    hours = np.array([int(look.at_s * HOURS / length_s) for look in looks])
    by_job: dict[str, list[float]] = {}
    for look in looks:
        for job in look.jobs:
            worth = (job.get("utility") or 0.0) / (job.get("max_utility") or 1.0)
            by_job.setdefault(job["job"], []).append(worth)
    return Result(
        policy,
        float(shares.mean()),
        float(np.percentile(shares, 10)),
        actions,
        {name: float(np.mean(values)) for name, values in by_job.items()},
        [float(shares[hours == hour].mean()) for hour in np.unique(hours)],
    )
