"""Owns five tenants' jobs on one small Spark application: what each wants, what comes in, and what all share.

Four jobs wait where they work, so that more instances help on two cores as they would on forty; the fifth
computes, a millisecond for each record, on the cores that all share. There are as many slots as the jobs begin with: whoever needs more
gets them from somebody else.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

from trilithon.control.rules import Rules
from trilithon.errors import InvalidLoad
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.model.job import Job, Operator
from trilithon.policies.scene import Mode
from trilithon.spec.job_file import load_job

ENDING_S: Final = 20


@dataclass(frozen=True)
class Tenant:
    """A job of the papers: whose it is, how much it matters, what it is promised, and its usual load."""

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
        file = resources.files("trilithon.workloads") / "jobs" / f"{self.file}.yaml"
        found = load_job(Path(str(file)))
        return replace(
            found,
            tenant=self.name,
            intent=Intent(self.thresholds, self.priority),
            operators=tuple(map(self._operator, found.operators)),
        )

    def _operator(self, operator: Operator) -> Operator:
        first = self.instances.get(operator.name, 1)
        bounds = replace(operator.parallelism, initial=first, min=1, max=max(MOST, first))
        return replace(operator, parallelism=bounds)

    @property
    def topic(self) -> str:
        (topic,) = self.job.sources[0].topics
        return topic


def p95(ms: float) -> Threshold:
    return Threshold(Metric.LATENCY, ms, "p95")


# Tasks per operator: few, since idle ones make the end of a batch longer.
MOST: Final = 6
TENANTS: Final = (
    Tenant("ads", "pageload", 35, (p95(200),), 100, {}),
    Tenant("shop", "linear", 20, (p95(250),), 40, {"first": 2, "second": 2, "third": 2}),
    Tenant("logs", "processing", 10, (p95(400),), 40, {"parse": 2, "filter": 2, "enrich": 2, "rank": 2}),
    Tenant("search", "wordcount", 10, (Threshold(Metric.JUICE, 0.95),), 20, {"split": 2, "normalise": 3}),
    Tenant("science", "primetester", 5, (p95(500),), 40, {}, computes=True),
)  # fmt: skip


def jobs(tenants: Sequence[Tenant] = TENANTS) -> list[Job]:
    return [tenant.job for tenant in tenants]


def slots(tenants: Sequence[Tenant] = TENANTS) -> int:
    """Just as many as the jobs begin with."""
    return sum(tenant.job.instances for tenant in tenants)


@dataclass(frozen=True)
class Offered:
    """What comes to one tenant: the options of a load generator."""

    tenant: Tenant
    options: Mapping[str, Any]


@contextmanager
def offered(
    kafka: str, loads: Sequence[Offered], for_s: float
) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """A load generator per tenant, each a process of its own, ended with whoever asked for them."""
    running: list[subprocess.Popen[bytes]] = []
    program = [sys.executable, "-m", "trilithon", "load", "--kafka", kafka, "--for", f"{for_s:g}s"]
    try:
        for one in loads:
            command = [*program, "--topic", one.tenant.topic]
            for name, value in one.options.items():
                command += [f"--{name}", str(value)]
            running.append(
                subprocess.Popen(  # noqa: S603 - ourselves
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
        yield running
        died = [one for one, p in zip(loads, running, strict=True) if p.poll() not in {None, 0}]
        if died:
            raise InvalidLoad(
                f"The load of {', '.join(one.tenant.name for one in died)} ended early.",
                "Run `trilithon load` with the same options by itself to see why.",
            )
    finally:
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(timeout=ENDING_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# Henge in minutes rather than hours: rounds, windows and waits of seconds, everything else as it is.
QUICK: Final[Mapping[str, Any]] = {
    "round_s": 5.0,
    "window_s": 15.0,
    "part_s": 5.0,
    "settle_s": 15.0,
    "settle_most_s": 40.0,
    "recover_s": 15.0,
    "warm_up_s": 10.0,
    "blacklist_s": 120.0,
}


def rules(policy: str, mode: Mode = Mode.AUTO) -> Rules:
    """What the controller of a run on a small machine goes by. A Reduction is not to wait for a minute."""
    parameters = {"henge": QUICK, "threshold": {"window_s": 15.0}}[policy]
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
class Look:
    """What all jobs were worth at a moment, of what they could be."""

    at_s: float
    utility: float
    most: float
    jobs: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, at_s: float, figures: Sequence[Mapping[str, Any]], most: float) -> "Look":
        """A job that is there and writes nothing is worth nothing."""
        return cls(at_s, sum(one.get("utility") or 0.0 for one in figures), most, tuple(figures))

    @property
    def satisfaction(self) -> float:
        return self.utility / self.most


def most_utility(tenants: Sequence[Tenant] = TENANTS) -> float:
    return sum(tenant.priority for tenant in tenants)
