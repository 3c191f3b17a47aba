"""What a daemon and its host logged after a moment, in the order of time."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mark:
    """An event, in seconds after the moment that a proof looks at."""

    at_s: float
    process: str
    event: str
    details: str

    def __str__(self) -> str:
        return f"{self.at_s:8.2f} s  {self.process:<7} {self.event}  {self.details}".rstrip()


def marks(folder: Path, since: float, processes: Iterable[str] = ("serve", "host")) -> list[Mark]:
    """The events of the JSON logs in a state folder since a time, the first first."""
    found = [
        mark
        for process in processes
        for line in _lines(folder / f"{process}.log")
        if (mark := _mark(line, process, since)) is not None and mark.at_s >= 0
    ]
    return sorted(found, key=lambda mark: mark.at_s)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _mark(line: str, process: str, since: float) -> Mark | None:
    try:
        fields = json.loads(line)
        at = datetime.fromisoformat(fields.pop("timestamp")).timestamp()
    except (ValueError, KeyError, AttributeError, TypeError):
        return None  # what a library printed
    event = str(fields.pop("event", ""))
    fields.pop("level", None)
    fields.pop("exception", None)
    details = ", ".join(f"{name}={value}" for name, value in fields.items())
    return Mark(round(at - since, 3), process, event, details[:200])
