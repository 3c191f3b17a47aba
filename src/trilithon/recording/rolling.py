"""Records into one file of a folder after the other: all but the last can be read meanwhile."""

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from trilithon import folders
from trilithon.model.snapshot import Snapshot
from trilithon.recording.parquet import ParquetRecorder


class RollingRecorder:
    """Begins a new file after so many entries."""

    def __init__(self, folder: Path, entries_per_file: int) -> None:
        self._folder, self._entries_per_file = folder, entries_per_file
        self._open: ParquetRecorder | None = None
        self._entries = 0
        folders.make(folder)

    def append(
        self,
        snapshot: Snapshot,
        name: str,
        body: str | None = None,
        look_back: Iterable[Snapshot] = (),
    ) -> None:
        """Adds an entry. A new file gets this name and begins with the entry's look-back."""
        if self._open is not None and self._entries >= self._entries_per_file:
            self.close()
        if self._open is None:
            self._open, self._entries = ParquetRecorder(self._folder / name), 0
            for earlier in look_back:
                self._open.write(earlier)
        self._open.write(snapshot, body)
        self._entries += 1

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
