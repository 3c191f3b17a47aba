"""What one tenant at ten times its load costs the others, in one application and in one per tenant.

    python -m bench.isolation [--rounds 1] [--seconds 30] [--rate 50] [--work 2] [--times 10]
    python -m bench.isolation --rogue [--seconds 20] [--work 4]

Three tenants have a job each: every record uses the CPU for `--work` ms. The daemon runs as users
run it, in turn with one application for all and with `--per-tenant`: credit gates, the policy
`threshold`, and quotas (two slots for the noisy tenant, one for each other). After a time at equal
rates the noisy tenant sends ten times as much. Printed side by side are the latency and rate of the
two others before and during that, from records that this program sent and read, the rate at which
the noisy tenant's records were written, and the memory of all processes of the engine.

A round takes about four minutes on two cores. Short form: `--seconds 5`.

`--rogue` is another trial, in one application: records of a tenant never end (`work(1000000000)` on
two instances) beside a neighbour whose load is 90 % of what it can take alone. Printed are the
neighbour's records per second in the 20 s before and the first 20 s beside the rogue. Exit code 1
if the neighbour keeps less than 80 %.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Final

from bench.proofs import figures, rogue
from bench.proofs.deployment import Deployment, await_that, deployed
from bench.proofs.scene import make_topic, temporary_folder
from bench.proofs.topics import written_to
from bench.proofs.traffic import Arrival, Load, Outlet
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.kafka import Kafka
from trilithon.model.job import Job
from trilithon.spec.dump import dump_job
from trilithon.spec.job_file import parse_job

NOISY: Final = "noisy"
CALM: Final = ("calm-a", "calm-b")
TENANTS: Final = (NOISY, *CALM)
QUOTAS: Final = {NOISY: 2, **dict.fromkeys(CALM, 1)}
MODES: Final = {"one application": (), "one per tenant": ("--per-tenant",)}
# Classes are loaded and code is compiled before anything is measured.
WARM_S: Final = 15.0
STARTS_S: Final = 240.0
PARTITIONS: Final = 2
RULES: Final = {
    "policy": "threshold",
    "quotas": QUOTAS,
    "limits": {"round_s": 5.0, "cool_down_s": 10.0, "fresh_s": 10.0},
}


@dataclass(frozen=True, slots=True)
class Span:
    """The records of all calm tenants in a span of time."""

    per_s: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    noisy_per_s: float

    @classmethod
    def of(cls, arrivals: Sequence[Arrival], noisy: int, seconds: float) -> "Span":
        p50_ms, p95_ms, p99_ms = (
            figures.quantile_ms((arrival.latency_s for arrival in arrivals), share)
            for share in (0.5, 0.95, 0.99)
        )
        rate = round(len(arrivals) / seconds, 1)
        return cls(rate, p50_ms, p95_ms, p99_ms, round(noisy / seconds, 1))


def job_of(tenant: str, work_ms: float) -> Job:
    return parse_job(f"""
name: load
tenant: {tenant}
sources:
  - name: in
    options: {{subscribe: {tenant}-in, startingOffsets: earliest}}
    schema: {{n: BIGINT, sent: DOUBLE}}
    partitions: {PARTITIONS}
operators:
  - name: busy
    input: in
    select: [n, sent]
    where: "work({work_ms}) >= 0"
    parallelism: {{initial: 1, max: 4}}
sinks:
  - {{name: out, input: busy, options: {{topic: {tenant}-out}}}}
intent:
  slo:
    - {{metric: latency, statistic: p95, at_most: 500 ms}}
""")


def measure(mode: str, options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as ending:
        folder = Path(ending.enter_context(temporary_folder()))
        broker = ending.enter_context(EmbeddedBroker.start(folder / "broker"))
        kafka = Kafka(broker.address)
        for tenant in TENANTS:
            make_topic(kafka, f"{tenant}-in", PARTITIONS)
            make_topic(kafka, f"{tenant}-out", PARTITIONS)
        rules = folder / "rules.yaml"
        rules.write_text(json.dumps(RULES))
        deployment = ending.enter_context(
            deployed(
                folder / "state",
                *("--kafka", broker.address, "--master", "local[32]", "--rules", str(rules)),
                *("--slots", str(sum(QUOTAS.values())), *MODES[mode]),
            )
        )
        submit(deployment, [job_of(tenant, options.work) for tenant in TENANTS])
        outlets = [Outlet(kafka, f"{tenant}-out") for tenant in CALM]
        for outlet in outlets:
            ending.callback(outlet.stop)
        loads = {tenant: Load(kafka, f"{tenant}-in", options.rate) for tenant in TENANTS}
        for load in loads.values():
            ending.callback(load.stop)
        with written_to(kafka, f"{NOISY}-out") as written:
            await_that("records flow", lambda: all(o.arrivals for o in outlets), 60)
            time.sleep(WARM_S)
            before = span(outlets, written, options.seconds)
            loads[NOISY].rate_per_s = options.rate * options.times
            during = span(outlets, written, options.seconds)
        rows = {row["metadata"]["id"]: row["status"] for row in deployment.ask("GET", "/jobs")}
        return {
            "before": asdict(before),
            "during": asdict(during),
            "slots": {name: status["slots"] for name, status in rows.items()},
            "memory_mb": round(sum(map(resident_mb, processes_in(folder / "state")))),
        }


def beside_a_rogue(options: argparse.Namespace) -> rogue.Kept:
    with ExitStack() as ending:
        folder = Path(ending.enter_context(temporary_folder()))
        broker = ending.enter_context(EmbeddedBroker.start(folder / "broker"))
        kafka = Kafka(broker.address)
        for tenant in (rogue.ROGUE, rogue.NEIGHBOUR):
            make_topic(kafka, f"{tenant}-in", rogue.PARTITIONS if tenant != rogue.ROGUE else 1)
            make_topic(kafka, f"{tenant}-out", PARTITIONS)
        deployment = ending.enter_context(
            deployed(
                folder / "state",
                *("--kafka", broker.address, "--master", "local[16]", "--slots", "8"),
            )
        )
        works_ms = {rogue.ROGUE: rogue.ENDLESS_MS, rogue.NEIGHBOUR: options.work}
        submit(deployment, [rogue.job_of(tenant, ms) for tenant, ms in works_ms.items()])
        return rogue.measure(deployment, kafka, processes_in(folder / "state"), options)


def submit(deployment: Deployment, jobs: Sequence[Job]) -> None:
    for job in jobs:
        deployment.ask("PUT", f"/jobs/{job.id}", {"spec": dump_job(job)})
    await_that("all jobs run", lambda: deployment.all_run(deployment.states()), STARTS_S)


def span(outlets: Sequence[Outlet], written: Any, seconds: float) -> Span:
    began, count = time.time(), written()
    time.sleep(seconds)
    ended, noisy = time.time(), written() - count
    arrivals = [arrival for outlet in outlets for arrival in outlet.since(began, ended)]
    return Span.of(arrivals, noisy, ended - began)


def processes_in(state: Path) -> list[int]:
    """The hosts of a state folder and their JVMs: what the engine itself needs."""
    mark = str(state / "spark").encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        own = f"TRILITHON_STATE={state}".encode() in environment.split(b"\0")
        if own and (mark in command or b"\0host\0" in command):
            found.append(int(entry.name))
    return found


def resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * 4096 / 2**20


def table(results: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Means over the rounds, the modes side by side."""
    lines = {"": "".join(f"{mode:>18}" for mode in results)}

    def number(runs: Sequence[dict[str, Any]], when: str, name: str) -> str:
        values = [run[when][name] for run in runs if run[when][name] is not None]
        return f"{mean(values):18.1f}" if values else f"{'n/a':>18}"

    for name in ("p50_ms", "p95_ms", "p99_ms", "per_s"):
        for when in ("before", "during"):
            label = f"others' {name.replace('_', ' ')}, {when}"
            lines[label] = "".join(number(runs, when, name) for runs in results.values())
    for when in ("before", "during"):
        label = f"noisy tenant per s, {when}"
        lines[label] = "".join(number(runs, when, "noisy_per_s") for runs in results.values())
    memory = [mean(run["memory_mb"] for run in runs) for runs in results.values()]
    lines["memory MB"] = "".join(f"{value:18.0f}" for value in memory)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rate", type=float, default=50.0, help="records/s of a tenant")
    parser.add_argument("--work", type=float, help="CPU ms per record")
    parser.add_argument("--times", type=float, default=10.0, help="how many times its load")
    parser.add_argument("--rogue", action="store_true", help="a tenant whose records never end")
    options = parser.parse_args()
    options.seconds = options.seconds or (20.0 if options.rogue else 30.0)
    options.work = options.work or (4.0 if options.rogue else 2.0)
    # What was started ends also if somebody ends this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if options.rogue:
        kept = beside_a_rogue(options)
        figures.show("One tenant whose records never end", kept.lines())
        figures.emit("isolation_rogue", {**asdict(kept), "share": round(kept.share, 3)})
        return 0 if kept.share >= rogue.KEPT else 1
    results: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    for _ in range(options.rounds):
        for mode, runs in results.items():
            runs.append(measure(mode, options))
            print(json.dumps({mode: runs[-1]}), flush=True)
    figures.show("One tenant at ten times its load", table(results))
    figures.emit("isolation", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
