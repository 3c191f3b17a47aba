"""Makes the records of a load: users by Zipf's law, and a JSON value for each."""

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np

SCHEMA = "user STRING, url STRING, at TIMESTAMP, seq BIGINT"
LEAST_BYTES = 160
PAGES = 500
SITES = 20
_BLOCK = 8192


class Records:
    """Makes the records of a load; the same seed gives the same users in the same order."""

    def __init__(
        self, keys: int, zipf: float, value_bytes: int | None = None, seed: int = 0
    ) -> None:
        self._users = [b"u%d" % k for k in range(keys)]
        # %% leaves a place for page, padding, time and number.
        self._forms = [
            b'{"user":"%b","url":"https://site-%d.example/page/%%03d%%b","at":"%%b","seq":%%b}'
            % (user, k % SITES)
            for k, user in enumerate(self._users)
        ]
        time = len(timestamp(0.0))
        # What is left for the padding and the number.
        self._room = [
            0 if value_bytes is None else value_bytes - len(form % (0, b"", b"t" * time, b""))
            for form in self._forms
        ]
        self._fill = b"?" + b"x" * (value_bytes or 0)
        self._draws = _draws(keys, zipf, np.random.default_rng(seed))
        self._padded = value_bytes is not None

    def make(self, first: int, count: int, now_s: float) -> list[tuple[bytes, bytes]]:
        """Keys and values of the records from a number on, all with the same time."""
        at = timestamp(now_s)
        users, forms, room, fill = self._users, self._forms, self._room, self._fill
        made = []
        pad = b""
        for seq, k in zip(range(first, first + count), self._draws, strict=False):
            number = b"%d" % seq
            if self._padded:
                pad = fill[: room[k] - len(number)]
            made.append((users[k], forms[k] % (seq % PAGES, pad, at, number)))
        return made


def _draws(keys: int, zipf: float, random: np.random.Generator) -> Iterator[int]:
    """Numbers of keys: the i-th is drawn in proportion to 1 / i^zipf; with 0 all alike."""
    weights = np.arange(1, keys + 1, dtype=float) ** -zipf
    bounds = np.cumsum(weights) / weights.sum()
    while True:
        drawn = np.searchsorted(bounds, random.random(_BLOCK), side="right")
        yield from np.minimum(drawn, keys - 1).tolist()


def timestamp(now_s: float) -> bytes:
    """A moment as Spark reads it: in UTC, to the microsecond, always as long."""
    moment = datetime.fromtimestamp(now_s, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds").encode() + b"Z"
