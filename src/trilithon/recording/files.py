"""Owns opening a recording, whatever form it has."""

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
    """A recording: Parquet, or the JSON of a snapshot or of a series of them."""
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
    """A series from JSON text."""
    try:
        data = json.loads(text, parse_constant=_no_constants, object_pairs_hook=_no_key_twice)
    except (ValueError, RecursionError) as error:
        raise InvalidRecording(
            f"{name} is neither Parquet nor JSON: {error}.", "Give a recording or a snapshot."
        ) from error
    if isinstance(data, dict) and data.get("format") == SERIES_FORMAT:
        snapshots = data.get("snapshots")
        if not isinstance(snapshots, list) or not snapshots or len(data) > 2:
            raise InvalidRecording(
                f"{name}: a series has `format` and `snapshots`, one or more.", ""
            )
        return Series(tuple(snapshot_from_json(one) for one in snapshots))
    return Series((snapshot_from_json(data),))


def recording_to_json(series: Series) -> str:
    """The JSON of a series; of the snapshot itself if there is only one."""
    snapshots = [snapshot_to_json(snapshot) for snapshot in series.snapshots]
    data: dict[str, Any] = (
        snapshots[0] if len(snapshots) == 1 else {"format": SERIES_FORMAT, "snapshots": snapshots}
    )
    return json.dumps(data, indent=2) + "\n"


def _no_constants(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found
