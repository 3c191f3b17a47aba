"""Defines five tenants' jobs on one small Spark application: intents, loads, slots.

Four jobs wait where they work, so that more instances help on two cores as they would on forty; the
fifth computes, a millisecond per record, on the cores that all share. There are as many slots as
the jobs begin with: whoever needs more gets them from another job.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from trilithon.control.rules import Rules
from trilithon.errors import InvalidLoad
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.model.job import Job, Operator
from trilithon.model.mode import Mode
from trilithon.spec.job_file import parse_job
from trilithon.workloads.paper_jobs import spark_job_text

STOP_TIMEOUT_S: Final = 20


@dataclass(frozen=True)
class TenantJob:
    """One of the papers' jobs: its tenant, priority, intent, usual load and first parallelism."""

    name: str
    file: str
    priority: float
    thresholds: tuple[Threshold, ...]
    per_s: float
    # Instances at the start, where it is not one.
    instances: Mapping[str, int]
    computes: bool = False

    @property
    def job(self) -> Job:
        job = parse_job(spark_job_text(self.file))
        return replace(
            job,
            tenant=self.name,
            intent=Intent(self.thresholds, self.priority),
            operators=tuple(map(self._operator, job.operators)),
        )

    def _operator(self, operator: Operator) -> Operator:
        first = self.instances.get(operator.name, 1)
        bounds = replace(
            operator.parallelism, initial=first, min=1, max=max(MAX_PARALLELISM, first)
        )
        return replace(operator, parallelism=bounds)

    @property
    def topic(self) -> str:
        (topic,) = self.job.sources[0].topics
        return topic


def p95(ms: float) -> Threshold:
    return Threshold(Metric.LATENCY, ms, "p95")


# Tasks per operator: few, since idle ones make the end of a batch longer.
MAX_PARALLELISM: Final = 6
TENANTS: Final = (
    TenantJob("ads", "pageload", 35, (p95(200),), 100, {}),
    TenantJob(
        "shop", "linear", 20, (p95(250),), 40, dict.fromkeys(("first", "second", "third"), 2)
    ),
    TenantJob(
        "logs",
        "processing",
        10,
        (p95(400),),
        40,
        dict.fromkeys(("parse", "filter", "enrich", "rank"), 2),
    ),
    TenantJob(
        "search",
        "wordcount",
        10,
        (Threshold(Metric.JUICE, 0.95),),
        20,
        {"split": 2, "normalise": 3},
    ),
    TenantJob("science", "primetester", 5, (p95(500),), 40, {}, computes=True),
)


def jobs(tenants: Sequence[TenantJob] = TENANTS) -> list[Job]:
    return [tenant.job for tenant in tenants]


def slots(tenants: Sequence[TenantJob] = TENANTS) -> int:
    """Exactly as many slots as the jobs begin with."""
    return sum(tenant.job.instances for tenant in tenants)


@dataclass(frozen=True)
class TenantLoad:
    """The load of one tenant: options of `trilithon load`, and the topic if it is not that of the
    tenant's job.
    """

    tenant: TenantJob
    options: Mapping[str, Any]
    other_topic: str | None = None

    @property
    def topic(self) -> str:
        return self.other_topic or self.tenant.topic


@contextmanager
def load_generators(
    kafka: str, loads: Sequence[TenantLoad], for_s: float
) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """Runs a load generator per tenant, each in a process of its own, until the context ends."""
    running: list[subprocess.Popen[bytes]] = []
    program = [sys.executable, "-m", "trilithon", "load", "--kafka", kafka, "--for", f"{for_s:g}s"]
    try:
        for load in loads:
            command = [*program, "--topic", load.topic]
            for name, value in load.options.items():
                command += [f"--{name}", str(value)]
            running.append(
                subprocess.Popen(  # noqa: S603 - ourselves
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
        yield running
        failed = [
            load.tenant.name
            for load, process in zip(loads, running, strict=True)
            if process.poll() not in {None, 0}
        ]
        if failed:
            raise InvalidLoad(
                f"The load generators of {', '.join(failed)} failed.",
                "Run `trilithon load` with the same options by itself to see why.",
            )
    finally:
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(timeout=STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def rules(policy: str, parameters: Mapping[str, Any], mode: Mode = Mode.AUTO) -> Rules:
    """The controller's rules on a small machine: short rounds, and no delay before scaling down."""
    limits = {
        "round_s": 5.0,
        "cool_down_s": 5.0,
        "fresh_s": 10.0,
        "up_factor": 4.0,
        "down_factor": 0.2,
        "down_delay_s": 0.0,
    }
    return Rules.of(
        {"policy": policy, "mode": str(mode), "limits": limits, "parameters": parameters}
    )


@dataclass(frozen=True)
class UtilitySample:
    """The utility of all jobs at a moment, and the most that they could have."""

    at_s: float
    utility: float
    max_utility: float
    jobs: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(
        cls, at_s: float, jobs: Sequence[Mapping[str, Any]], max_utility: float
    ) -> "UtilitySample":
        """From the figures of each job. A job that writes nothing is worth nothing."""
        utility = sum(job.get("utility") or 0.0 for job in jobs)
        return cls(at_s, utility, max_utility, tuple(jobs))

    @property
    def satisfaction(self) -> float:
        return self.utility / self.max_utility


def max_utility(tenants: Sequence[TenantJob] = TENANTS) -> float:
    return sum(tenant.priority for tenant in tenants)
