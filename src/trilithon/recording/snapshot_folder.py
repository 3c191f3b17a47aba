"""Records snapshots into files of a folder, so that all but the last file can be read meanwhile."""

from pathlib import Path
from typing import Final

from trilithon.model.snapshot import Snapshot
from trilithon.recording.rolling import RollingRecorder

SNAPSHOTS_PER_FILE: Final = 360


class SnapshotFolder(RollingRecorder):
    """Writes each snapshot once; a file is named after the time of its first snapshot."""

    def __init__(self, folder: Path, snapshots_per_file: int = SNAPSHOTS_PER_FILE) -> None:
        super().__init__(folder, snapshots_per_file)
        self._last_s: float | None = None

    def write(self, snapshot: Snapshot) -> None:
        if self._last_s is not None and snapshot.time_s <= self._last_s:
            return
        self.append(snapshot, f"snapshots-{snapshot.time_s:014.3f}.parquet")
        self._last_s = snapshot.time_s
