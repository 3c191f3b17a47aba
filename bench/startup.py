"""How much CPU time commands take that only start up, read a file and
end: `python -m bench.startup`.

Each command is run in a process of its own, several times; the median of user and system time is
printed, with `python -c pass` beside it. "bytecode" is how an installed program starts, "source"
how one starts where Python neither finds nor writes compiled files.
"""

import os
import statistics
import sys
import tempfile
from importlib import resources
from pathlib import Path

RUNS = 7
JOB = resources.files("trilithon.cli") / "templates" / "job.yaml"
# Seconds of CPU that a command may take, with bytecode.
LIMITS = {"--help": 0.3, "validate": 0.6}


def cpu_s(arguments: list[str], environment: dict[str, str]) -> float:
    """User and system time of one process, its children included."""
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(
        sys.executable, [sys.executable, *arguments], environment, file_actions=silent
    )
    _, status, used = os.wait4(pid, 0)
    assert status == 0, arguments
    return used.ru_utime + used.ru_stime


def median_s(arguments: list[str], environment: dict[str, str], runs: int = RUNS) -> float:
    cpu_s(arguments, environment)  # the first one reads from the disk, and may write bytecode
    return statistics.median(cpu_s(arguments, environment) for _ in range(runs))


def commands(job: Path) -> dict[str, list[str]]:
    program = ["-m", "trilithon"]
    return {
        "python -c pass": ["-c", "pass"],
        "--help": [*program, "--help"],
        "validate": [*program, "validate", str(job)],
        "plan": [*program, "plan", str(job)],
    }


def environments(folder: Path) -> dict[str, dict[str, str]]:
    """With a cache of compiled files of our own, and with one that stays empty."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    empty = {"PYTHONPYCACHEPREFIX": str(folder / "empty"), "PYTHONDONTWRITEBYTECODE": "1"}
    return {
        "bytecode": {**clean, "PYTHONPYCACHEPREFIX": str(folder / "cache")},
        "source": {**clean, **empty},
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        job = Path(name) / "job.yaml"
        job.write_text(JOB.read_text(encoding="utf-8"), encoding="utf-8")
        kinds = environments(Path(name))
        print(f"{'CPU s, median of ' + str(RUNS):<20}" + "".join(f"{kind:>12}" for kind in kinds))
        for title, arguments in commands(job).items():
            times = [median_s(arguments, environment) for environment in kinds.values()]
            limit = f"   at most {LIMITS[title]} with bytecode" if title in LIMITS else ""
            print(f"{title:<20}" + "".join(f"{time:>12.2f}" for time in times) + limit)


if __name__ == "__main__":
    main()
