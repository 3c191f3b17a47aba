"""Records snapshots into files of a folder, so that all but the last file can be read meanwhile."""

from pathlib import Path
from typing import Final, Self

from trilithon import folders
from trilithon.model.snapshot import Snapshot
from trilithon.recording.parquet import ParquetRecorder

SNAPSHOTS_PER_FILE: Final = 360


class SnapshotFolder:
    """Writes each snapshot once; a file is named after the time of its first snapshot."""

    def __init__(self, folder: Path, snapshots_per_file: int = SNAPSHOTS_PER_FILE) -> None:
        self._folder, self._snapshots_per_file = folder, snapshots_per_file
        self._open: ParquetRecorder | None = None
        self._count = 0
        self._last_s: float | None = None
        folders.make(folder)

    def write(self, snapshot: Snapshot) -> None:
        if self._last_s is not None and snapshot.time_s <= self._last_s:
            return
        if self._open is not None and self._count >= self._snapshots_per_file:
            self.close()
        if self._open is None:
            name = f"snapshots-{snapshot.time_s:014.3f}.parquet"
            self._open, self._count = ParquetRecorder(self._folder / name), 0
        self._open.write(snapshot)
        self._last_s = snapshot.time_s
        self._count += 1

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
