"""What processes and threads of this machine use: CPU time, memory, threads, sockets, by /proc."""

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trilithon.engines.spark.background_process import command_line

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_PROCESSES: Final = Path("/proc")
_OWN_THREADS: Final = Path("/proc/self/task")


def is_executor(pid: int) -> bool:
    """Whether a process is one of Spark's executors; one that is gone or a zombie is none."""
    return any(part.endswith("CoarseGrainedExecutorBackend") for part in command_line(pid))


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over some processes; one that has ended counts as nothing."""

    cpu_s: float
    memory_mb: float
    threads: int
    sockets: int

    @classmethod
    def of(cls, pids: Iterable[int], proc: Path = _PROCESSES) -> "Usage":
        cpu_s, memory_mb, threads, sockets = 0.0, 0.0, 0, 0
        for pid in pids:
            folder = proc / str(pid)
            try:
                stat, pages = (folder / "stat").read_text(), (folder / "statm").read_text()
                files = list((folder / "fd").iterdir())
            except OSError:
                continue
            cpu_s += cpu_of(stat)
            memory_mb += int(pages.split()[1]) * PAGE_BYTES / 2**20
            threads += int(_fields(stat)[17])
            sockets += sum(_target(file).startswith("socket:") for file in files)
        return cls(cpu_s, memory_mb, threads, sockets)


def processes_cpu_s(pids: Iterable[int], proc: Path = _PROCESSES) -> float:
    """The CPU seconds of some processes; one that has ended counts as nothing."""
    return _cpu_s(proc / str(pid) for pid in pids)


def cpu_of(stat: str) -> float:
    """The CPU seconds of a process or thread, user and system, from its `stat`."""
    fields = _fields(stat)
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def own_threads() -> set[int]:
    """The threads of this process."""
    return {int(folder.name) for folder in _OWN_THREADS.iterdir()}


def threads_cpu_s(threads: Collection[int]) -> float:
    """The CPU seconds of threads of this process; one that has ended counts as nothing."""
    return _cpu_s(_OWN_THREADS / str(thread) for thread in threads)


def _cpu_s(folders: Iterable[Path]) -> float:
    spent_s = 0.0
    for folder in folders:
        try:
            spent_s += cpu_of((folder / "stat").read_text())
        except OSError:
            continue
    return spent_s


def _fields(stat: str) -> list[str]:
    """The fields behind the name, which may have spaces and brackets."""
    return stat.rpartition(")")[2].split()


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # closed meanwhile
