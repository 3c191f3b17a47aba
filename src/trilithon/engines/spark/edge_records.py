"""Looks at the records of an edge inside a query: the probe shows a few of those that pass."""

import contextlib
import json
import time
from datetime import UTC, datetime
from typing import Any, Final

from trilithon.engines.spark.probe_control import ProbeControl

# How long a look waits for records; for as long, and a little more, the edge is watched.
WAIT_S: Final = 2.0
WATCHED_S: Final = 3.0
_POLL_S: Final = 0.05


def edge_records(
    control: ProbeControl, part: str, edge: str, count: int, wait_s: float = WAIT_S
) -> list[dict[str, Any]]:
    """Records of an edge, written `from->to`, of one part of a job, that pass from now on, the
    oldest first: the latest `count` of those seen, or fewer if fewer pass while it waits.
    """
    source, _, target = edge.partition("->")
    name = f"{part}/{source}>{target}"
    deadline, began_s = time.monotonic() + wait_s, time.time()
    control.watch(name, WATCHED_S)
    while len(seen := _since(control, name, began_s)) < count and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return [_shown(record) for record in seen[-count:]]


def _since(control: ProbeControl, name: str, time_s: float) -> list[dict[str, Any]]:
    """What passed since a time: an earlier look may have left more. Executors tell in turn."""
    passed = (record for record in control.seen(name) if record["time_s"] >= time_s)
    return sorted(passed, key=lambda record: float(record["time_s"]))


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    at, value = datetime.fromtimestamp(record["time_s"], UTC), record["value"]
    with contextlib.suppress(ValueError):  # a long record is cut off
        value = json.loads(value)
    return {
        "instance": record["instance"],
        "time": at.isoformat(timespec="milliseconds"),
        "value": value,
    }
