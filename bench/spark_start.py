"""The CPU seconds until Spark has answered a first query, with and without the archive of classes.

    python -m bench.spark_start [--runs 3]

CPU seconds of the driver's JVM, in turn with and without the archive: unlike the time on the clock
they hardly depend on what else the machine does. Without an archive, one is made first.
"""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from statistics import mean
from typing import Any

from bench.proofs import figures
from trilithon.engines.spark.class_archive import ClassArchive
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
from trilithon.engines.spark.jdk import find_jdk
from trilithon.engines.spark.session import class_archive, driver_process, session


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(folder: Path, archive: ClassArchive | None = None) -> tuple[float, float, float]:
    """CPU seconds until the session is there and until a query was answered, and seconds on the
    clock until the latter. Makes the archive, if it is given and missing.
    """
    began = time.monotonic()
    with session(
        "local[24]", folder, fetch_jars(CONNECTOR), record_classes=archive is not None
    ) as spark:
        pid = driver_process()
        assert pid is not None
        ready_s = cpu_s(pid)
        spark.range(1).count()
        result = ready_s, cpu_s(pid), time.monotonic() - began
        if archive is not None:
            assert archive.make(pid, threading.Event())
    return result


def measure(runs: int) -> dict[str, Any]:
    jdk = find_jdk()
    assert jdk is not None
    with tempfile.TemporaryDirectory(prefix="trilithon-start-") as name:
        folder, used = Path(name), os.environ.get("TRILITHON_CACHE")
        archive = class_archive(jdk, fetch_jars(CONNECTOR))
        if not archive.path.is_file():
            start(folder, archive)
        (folder / "cache").mkdir()
        (folder / "cache" / "jars").symlink_to(fetch_jars(CONNECTOR)[0].parent.parent)
        results: dict[str, list[tuple[float, float, float]]] = {"archive": [], "none": []}
        for _ in range(runs):
            results["archive"].append(start(folder))
            os.environ["TRILITHON_CACHE"] = str(folder / "cache")
            try:
                results["none"].append(start(folder))
            finally:
                os.environ.pop("TRILITHON_CACHE")
                if used is not None:
                    os.environ["TRILITHON_CACHE"] = used
    return {
        kind: {
            "session_cpu_s": round(mean(run[0] for run in of_kind), 1),
            "first_query_cpu_s": round(mean(run[1] for run in of_kind), 1),
            "first_query_s": round(mean(run[2] for run in of_kind), 1),
        }
        for kind, of_kind in results.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    results = measure(parser.parse_args().runs)
    for kind, result in results.items():
        figures.show(kind, result)
    figures.emit("spark_start", results)


if __name__ == "__main__":
    main()
