"""Loads a recording from a file, in Parquet or in JSON."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from trilithon.errors import FileUnreadable, InvalidRecording
from trilithon.model.series import Series
from trilithon.recording import parquet
from trilithon.recording.documents import SERIES_FORMAT
from trilithon.recording.snapshots import snapshot_from_json, snapshot_to_json


def load_recording(path: Path) -> Series:
    """Load a Parquet recording, or the JSON of a snapshot or of a series."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise FileUnreadable(
            f"{path} cannot be read: {error.strerror}.", "Check the name and the permissions."
        ) from error
    return (
        parquet.read_series(path)
        if magic == b"PAR1"
        else parse_recording(path.read_bytes(), str(path))
    )


def parse_recording(text: str | bytes, name: str = "the recording") -> Series:
    """Parse the JSON of a snapshot or of a series."""
    try:
        data = json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates
        )
    except (ValueError, RecursionError) as error:
        raise InvalidRecording(
            f"{name} is neither Parquet nor JSON: {error}.",
            "Pass a recording in Parquet, or a snapshot in JSON.",
        ) from error
    if isinstance(data, dict) and data.get("format") == SERIES_FORMAT:
        snapshots = data.get("snapshots")
        if not isinstance(snapshots, list) or not snapshots or len(data) > 2:
            raise InvalidRecording(
                f"{name}: a series has two fields, `format` and `snapshots`.",
                "List at least one snapshot, and remove other fields.",
            )
        return Series(tuple(snapshot_from_json(snapshot) for snapshot in snapshots))
    return Series((snapshot_from_json(data),))


def recording_to_json(series: Series) -> str:
    """The JSON of a series; of the snapshot itself if it has only one."""
    snapshots = [snapshot_to_json(snapshot) for snapshot in series.snapshots]
    data: dict[str, Any] = (
        snapshots[0] if len(snapshots) == 1 else {"format": SERIES_FORMAT, "snapshots": snapshots}
    )
    return json.dumps(data, indent=2) + "\n"


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        duplicate = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"the key {duplicate!r} occurs twice")
    return mapping
