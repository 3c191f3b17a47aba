"""Keeps an archive of the classes that Spark's driver loads: with it a driver starts in half the
time.

A driver loads and verifies more than ten thousand classes before its first query runs. The JVM can
map them from a file instead (class data sharing). A driver without such a file writes down which
classes it loads; when its jobs run, a separate process of the lowest priority makes the file. It
belongs to one JDK and one set of jars, and the JVM ignores it if those have changed.
"""

import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyspark

from trilithon import folders, logs
from trilithon.engines.spark.background_process import command_line

# What the driver's first jobs load belongs into the archive, and their start comes before it.
SETTLED_S: Final = 45.0
# An archive takes some 200 MB: those of jars that are used no more go, except for the last ones.
KEPT: Final = 2
# A list of classes that is older was left behind by a driver that was killed.
_LEFT_S: Final = 86_400.0
_NICE: Final = 19
_DUMP_S: Final = 900.0
# The JVM would print a line for every class that it cannot archive.
_QUIET: Final = "-Xlog:disable"
_log = logs.logger()


@dataclass
class ClassArchive:
    """The archive for a JDK and the jars that Spark is given besides its own."""

    jdk: Path
    jars: Sequence[Path]
    folder: Path = field(default_factory=lambda: folders.cache() / "classes")

    @property
    def path(self) -> Path:
        return self.folder / f"{self._key}.jsa"

    @property
    def _list(self) -> Path:
        return self.folder / f"{self._key}-{os.getpid()}.classes"

    @property
    def _key(self) -> str:
        """Changes with everything that decides which classes there are."""
        release = self.jdk / "release"
        parts = [release.read_text(errors="replace") if release.is_file() else str(self.jdk)]
        own = Path(pyspark.__file__).parent / "jars"
        for jar in (own, *self.jars):
            status = jar.stat()
            parts.append(f"{jar} {status.st_size} {status.st_mtime_ns}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def java_options(self, *, record: bool = False) -> str:
        """The options of a driver that uses the archive; without one, of a driver that records
        what it loads if `record` says so.
        """
        if " " in str(self.folder):
            return ""  # Spark splits options at spaces
        if self.path.is_file():
            os.utime(self.path)  # the time of its last use
            return f"-XX:SharedArchiveFile={self.path} -Xlog:cds=off -Xlog:class+path=off"
        if not record:
            return ""
        self.folder.mkdir(parents=True, exist_ok=True)
        return f"-XX:DumpLoadedClassList={self._list}"

    def make(self, driver: int, ended: threading.Event) -> bool:
        """Makes the archive from what a driver has recorded so far; whether there is one now."""
        recorded = self._list
        if self.path.is_file() or not recorded.is_file():
            recorded.unlink(missing_ok=True)
            return self.path.is_file()
        listed, fresh = recorded.with_suffix(".complete"), recorded.with_suffix(".new")
        try:
            # The driver writes on, even after its file was removed.
            text = recorded.read_text(errors="replace")
            listed.write_text(text[: text.rfind("\n") + 1])
            command = [
                str(self.jdk / "bin" / "java"),
                "-Xshare:dump",
                _QUIET,
                f"-XX:SharedClassListFile={listed}",
                f"-XX:SharedArchiveFile={fresh}",
                *memory_options(command_line(driver)),
                "-cp",
                class_path(command_line(driver)),
            ]
            if _run_at_lowest_priority(command, ended) != 0 or not fresh.is_file():
                _log.warning("class_archive_not_made", jdk=str(self.jdk))
                return False
            fresh.replace(self.path)
            self._tidy()
        finally:
            for left in (recorded, listed, fresh):
                left.unlink(missing_ok=True)
        _log.info("class_archive_made", path=str(self.path), bytes=self.path.stat().st_size)
        return True

    def _tidy(self) -> None:
        """Removes archives that were not used for longest, and lists that nobody writes. A driver
        keeps what it has mapped.
        """
        archives = sorted(self.folder.glob("*.jsa"), key=lambda path: path.stat().st_mtime)
        others = [path for path in archives if path != self.path]
        now_s = time.time()
        left = [
            path for path in self.folder.glob("*.classes") if now_s - path.stat().st_mtime > _LEFT_S
        ]
        for path in (*others[: max(0, len(others) - KEPT)], *left):
            path.unlink(missing_ok=True)

    def make_when(
        self, settled: Callable[[], bool], driver: int, settled_s: float = SETTLED_S
    ) -> Callable[[], None]:
        """Makes the archive in a thread, some time after a condition came about. Returns what ends
        the thread.
        """
        ended = threading.Event()

        def run() -> None:
            while not settled():
                if ended.wait(1.0):
                    return
            if not ended.wait(settled_s):
                try:
                    self.make(driver, ended)
                except OSError:
                    _log.exception("class_archive_not_made")

        thread = threading.Thread(target=run, name="class-archive", daemon=True)
        thread.start()

        def end() -> None:
            ended.set()
            thread.join(timeout=10)
            self._list.unlink(missing_ok=True)

        return end


def class_path(command: Sequence[str]) -> str:
    """The class path in a command line of Java: an archive is of exactly one."""
    return command[command.index("-cp") + 1] if "-cp" in command else ""


def memory_options(command: Iterable[str]) -> list[str]:
    """The options of a command line that decide how the JVM encodes addresses in an archive."""
    return [option for option in command if option.startswith("-Xmx")]


def _run_at_lowest_priority(command: Sequence[str], ended: threading.Event) -> int:
    """Runs a command until it ends, or until `ended` is set."""
    process = subprocess.Popen(  # noqa: S603 - the JDK's own java
        ["/usr/bin/env", "nice", "-n", str(_NICE), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    waited_s = 0.0
    while (code := process.poll()) is None:
        waited_s += 0.5
        if ended.wait(0.5) or waited_s > _DUMP_S:
            process.kill()
            return process.wait()
    return code
