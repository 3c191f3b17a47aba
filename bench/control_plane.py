"""What the control plane costs: the driver's probe and the host, for many executors and jobs.

    python -m bench.control_plane [--sizes 10x100 100x1000] [--seconds 10] [--busy 100 10]

Fake executors exchange credits and tables with the probe's driver side ten times a second and
report once a second, as real ones do; each job has six instances. In the first figures every
instance of every job works, in the second those of one job in ten, and the others wait for records.
`driver_cores` is the CPU time that the driver spends on it per second; `host_cores` what Python
then spends on the reports: reading them, the watchdog, the backlogs, and the host's own report. The
executors' part runs on other machines and is not counted.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.proofs import figures
from trilithon.engines.spark import probe
from trilithon.engines.spark.backlog import Backlogs
from trilithon.engines.spark.collection_pause import collection_paused
from trilithon.engines.spark.host_report import HostReports, RunningJob
from trilithon.engines.spark.jdk import find_jdk
from trilithon.engines.spark.telemetry import report_of
from trilithon.engines.spark.watchdog import RecordWatch
from trilithon.engines.spark.whole_reports import WholeReports
from trilithon.model.allocation import initial
from trilithon.model.job import Edge, Field, Job, Operator, Parallelism, Sink, Source, Work

ROOT: Final = Path(__file__).resolve().parent.parent
MAIN: Final = "io.trilithon.probe.ControlPlaneLoad"
LIMIT_CORES: Final = 0.5


def job_of(number: int) -> Job:
    width = Parallelism(2, 1, 8)
    return Job(
        tenant="t",
        name=f"j{number}",
        sources=(Source("in", (Field("n", "BIGINT"),), (("subscribe", f"in{number}"),), 2),),
        operators=(
            Operator("a", Work(where="n >= 0"), width),
            Operator("b", Work(select=("n",)), width),
        ),
        edges=(Edge("in", "a"), Edge("a", "b"), Edge("b", "out")),
        sinks=(Sink("out", (("topic", f"out{number}"),)),),
    )


def compiled(folder: Path) -> str:
    """Compiles the probe and the load to a folder; returns their class path."""
    jar = probe.build(ROOT / "probe", folder / "probe.jar")
    probe.compile_tests(ROOT / "probe", folder, jar)
    return os.pathsep.join([str(jar), str(folder), probe.spark_jars()])


def driver(
    class_path: str, executors: int, jobs: int, seconds: int, busy: int
) -> tuple[dict[str, float], list[str]]:
    """The driver's figures, and what the host drains, second by second."""
    jdk = find_jdk()
    assert jdk is not None
    with tempfile.TemporaryDirectory(prefix="trilithon-control-") as name:
        drained = Path(name) / "drained.json"
        sizes = [str(executors), str(jobs), str(seconds), str(drained), str(busy)]
        output = subprocess.run(  # noqa: S603 - the JDK's own java
            [jdk / "bin" / "java", "-Xmx2g", "-cp", class_path, MAIN, *sizes],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return json.loads(output.splitlines()[-1]), drained.read_text("utf-8").splitlines()


def host_cores(drained: Sequence[str], jobs: int) -> float:
    """The CPU seconds that the host spends on the reports of one second."""
    known = {job.id: job for job in map(job_of, range(jobs))}
    records, backlogs, whole = RecordWatch(), Backlogs(), WholeReports()
    host, allocations = HostReports("app"), {name: initial(job) for name, job in known.items()}
    began = time.process_time()
    for second, text in enumerate(drained):
        with collection_paused():
            read_reports(text, whole, records, backlogs, known)
        # Lag is asked for twice a second.
        for _ in range(2):
            running = [
                RunningJob(job, allocations[name], 1, {"in": 10.0 * second}, {"in": 2})
                for name, job in known.items()
            ]
            host.report(second, 0.0, running)
    return (time.process_time() - began) / len(drained)


def read_reports(
    text: str,
    whole: WholeReports,
    records: RecordWatch,
    backlogs: Backlogs,
    jobs: Mapping[str, Job],
) -> None:
    """What the engine does with the reports that it drains."""
    drained, missing = whole.complete(json.loads(text))
    assert not missing
    backlogs.observe(drained["reports"])
    records.observe(drained["reports"], jobs)
    for report in drained["reports"]:
        report_of(report, jobs, "app")


def measure(class_path: str, executors: int, jobs: int, seconds: int, busy: int) -> dict[str, Any]:
    result, drained = driver(class_path, executors, jobs, seconds, busy)
    host = host_cores(drained, jobs)
    cores = {"driver_cores": round(result.pop("driver_cores"), 3), "host_cores": round(host, 3)}
    return {
        "executors": executors,
        "jobs": jobs,
        "busy_percent": busy,
        **cores,
        "cores": round(sum(cores.values()), 3),
        **{name: int(value) for name, value in result.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", default=["10x100", "100x1000"])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--busy", nargs="+", type=int, default=[100, 10], metavar="PERCENT")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(prefix="trilithon-control-") as folder:
        class_path = compiled(Path(folder))
        for size in options.sizes:
            executors, _, jobs = size.partition("x")
            for busy in options.busy:
                result = measure(class_path, int(executors), int(jobs), options.seconds, busy)
                results[f"{size} {busy}%"] = result
                figures.show(f"{executors} executors, {jobs} jobs, {busy} % of them busy", result)
    figures.emit("control_plane", results)
    if any(result["cores"] > LIMIT_CORES for result in results.values()):
        sys.exit(f"The limit is {LIMIT_CORES:g} cores.")


if __name__ == "__main__":
    main()
