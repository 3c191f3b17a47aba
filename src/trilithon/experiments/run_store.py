"""Stores simulated runs under what they depend on, so that none is simulated twice.

The search for the best static allocation begins with the manual one and with where the policy ends,
which are runs of their own; variants that differ only in the first allocation share all that does
not begin with it. With a folder the processes of an experiment share what is stored, and after an
interruption the experiment goes on with it.
"""

import os
import pickle
import shutil
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, TypeVar

from trilithon.scenarios.scenario import Scenario

T = TypeVar("T")
_UNREADABLE: Final = (
    OSError,
    zlib.error,
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    ImportError,
    IndexError,
)


def scenario_key(scenario: Scenario) -> str:
    """What a run without a policy depends on: all of the scenario but its names."""
    return repr(replace(scenario, name="", about="", policy=None))


class RunStore:
    """Results by key: in a folder, or in memory without one."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._in_memory: dict[str, Any] = {}
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError:
                self.folder = None  # nothing is shared, and all is run

    def get(self, key: object, compute: Callable[[], T]) -> T:
        """The stored result, computed if there is none. Nobody may change it."""
        name = sha256(repr(key).encode()).hexdigest()
        if self.folder is None:
            if name not in self._in_memory:
                self._in_memory[name] = compute()
            result: T = self._in_memory[name]
            return result
        path = self.folder / name
        # A file that cannot be read, or only by the version that wrote it, is as good as none.
        with suppress(*_UNREADABLE):
            stored: T = pickle.loads(zlib.decompress(path.read_bytes()))  # noqa: S301 - our own
            return stored
        result = compute()
        self._write(path, result)
        return result

    def _write(self, path: Path, result: object) -> None:
        """Writes all or nothing, also where two processes write the same."""
        data = zlib.compress(pickle.dumps(result, pickle.HIGHEST_PROTOCOL), 1)
        # A full disk costs the stored result, not the run.
        with suppress(OSError), NamedTemporaryFile(dir=path.parent, delete=False) as new:
            try:
                new.write(data)
                new.flush()
                os.replace(new.name, path)  # noqa: PTH105 - of an open file
            except OSError:
                Path(new.name).unlink(missing_ok=True)
                raise

    def clear(self) -> None:
        """Removes what is stored."""
        self._in_memory.clear()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
