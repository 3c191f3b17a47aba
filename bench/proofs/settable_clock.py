"""A wall clock that a benchmark can set, for itself and all processes that it starts.

A small library in C is preloaded (`clock_shim.c`), which adds an offset to the wall clock. The
offset is in a file that all processes map, so that it changes in all of them at the same moment.
The machine's clock is left alone. A wait by the wall clock that is under way when the clock is set
is not changed, as it would be by the kernel; the JVM, Python and the Kafka clients wait by the
steady clock.
"""

import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("clock_shim.c")
OFFSET: Final = "TRILITHON_CLOCK_OFFSET"
_LIBRARY: Final = "clock_shim.so"


class SettableClock:
    """The offset of the wall clock that this process and its children see."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 8)
        self.offset_s = 0.0

    def set(self, offset_s: float) -> None:
        """Sets the clock to the machine's plus this offset."""
        self._page[:] = struct.pack("<q", round(offset_s * 1e9))
        self.offset_s = offset_s


@contextmanager
def settable_clock(module: str) -> Iterator[SettableClock]:
    """The clock of this process. A process that does not have one becomes, with the same arguments,
    one that does: the module is run again.
    """
    if OFFSET not in os.environ:
        _run_again(module)
    path = Path(os.environ[OFFSET])
    clock = SettableClock(path)
    try:
        yield clock
    finally:
        clock.set(0.0)
        shutil.rmtree(path.parent, ignore_errors=True)


def _run_again(module: str) -> None:
    if (compiler := shutil.which("gcc") or shutil.which("cc")) is None:
        sys.exit("A C compiler (gcc or cc) is needed to build the clock that can be set.")
    folder = Path(tempfile.mkdtemp(prefix="trilithon-clock-"))
    library, offset = folder / _LIBRARY, folder / "offset"
    offset.write_bytes(bytes(8))
    flags = ["-O2", "-Wall", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run([compiler, *flags, "-ldl", "-lpthread"], check=True)  # noqa: S603 - ours
    environment = {**os.environ, "LD_PRELOAD": str(library), OFFSET: str(offset)}
    command = [sys.executable, "-m", module, *sys.argv[1:]]
    os.execve(sys.executable, command, environment)  # noqa: S606 - this program, again


def has_settable_clock(pid: int) -> bool:
    """Whether the clock of a process of this machine can be set."""
    return _LIBRARY in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
