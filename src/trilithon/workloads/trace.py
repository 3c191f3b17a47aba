"""Reads a trace: a CSV file with a row number and a value per line. Errors name the line."""

import csv
import math
from importlib import resources
from pathlib import Path

from trilithon.errors import FileUnreadable, InvalidLoad

MOST_ROWS = 100_000
MOST_BYTES = 10_000_000
SHIPPED = resources.files("trilithon.workloads") / "traces"


def names() -> list[str]:
    """The traces that come with the package."""
    return sorted(
        entry.name.removesuffix(".csv")
        for entry in SHIPPED.iterdir()
        if entry.name.endswith(".csv")
    )


def load(name: str) -> list[float]:
    """The values of a shipped trace by its name, or of a file."""
    if name in names():
        return loads((SHIPPED / f"{name}.csv").read_text(encoding="utf-8"), name)
    path = Path(name)
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise FileUnreadable(
            f"The trace {name} cannot be read: {why}.",
            f"Name a CSV file, or one of {', '.join(names())}.",
        ) from error
    if len(content) > MOST_BYTES:
        raise FileUnreadable(f"The trace {name} is larger than {MOST_BYTES:,} bytes.", "Thin it.")
    return loads(text, name)


def loads(text: str, name: str = "trace") -> list[float]:
    """The values of a trace: after the heading, rows numbered without a gap, none negative."""
    values: list[float] = []
    first = 0
    reader = csv.reader(text.removeprefix("\ufeff").splitlines())
    for line, row in enumerate(reader, start=1):
        place = f"{name}:{line}"
        if len(row) != 2:
            raise InvalidLoad(f"{place}: a row has {len(row)} columns.", "Two are expected.")
        if line == 1:
            if _number(row[1]) is not None:
                raise InvalidLoad(f"{place}: the heading is missing.", "Write one: hour,requests")
            continue
        index, value = _number(row[0]), _number(row[1])
        if index is None or index != int(index):
            raise InvalidLoad(f"{place}: {row[0]!r} is not a row's number.", "Count: 0, 1, 2 …")
        if value is None:
            raise InvalidLoad(f"{place}: {row[1]!r} is not a number.", "Give each row its rate.")
        if value < 0:
            raise InvalidLoad(f"{place}: a rate of {row[1]} is negative.", "The least is 0.")
        first = int(index) if not values else first
        if (expected := first + len(values)) != index:
            raise InvalidLoad(
                f"{place}: row {row[0]} comes where {expected} should.", "Fill the gap, in order."
            )
        values.append(value)
        if len(values) > MOST_ROWS:
            raise InvalidLoad(f"{place}: there are more than {MOST_ROWS:,} rows.", "Thin them.")
    if not any(values):
        raise InvalidLoad(f"{name}:1: no row has a rate above 0.", "A trace needs one at least.")
    return values


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
