"""Makes the events of the Yahoo streaming benchmark: views, clicks and purchases of ads, as JSON.

Each of 100 campaigns has 10 ads. An event names a user, a page, an ad, its kind and its time; a
third of them are views. Ads, users and pages are drawn evenly, as in the benchmark's generator.
"""

import uuid
from collections.abc import Iterator
from functools import cache
from typing import Final

import numpy as np

CAMPAIGNS: Final = 100
ADS_PER_CAMPAIGN: Final = 10
USERS: Final = 100
PAGES: Final = 100
AD_TYPES: Final = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES: Final = ("view", "click", "purchase")
SCHEMA: Final = (
    "user_id STRING, page_id STRING, ad_id STRING, ad_type STRING, event_type STRING,"
    " event_time BIGINT, ip_address STRING"
)
_NAMESPACE: Final = uuid.UUID("5f0c2f0e-6d0b-4b8e-9a37-2c0f6b9b3a51")
_BLOCK: Final = 8192


@cache
def campaigns() -> tuple[tuple[str, str], ...]:
    """Each ad with its campaign: the table that the benchmark keeps beside the stream."""
    return tuple(
        (_id("ad", number), _id("campaign", number // ADS_PER_CAMPAIGN))
        for number in range(CAMPAIGNS * ADS_PER_CAMPAIGN)
    )


class AdEvents:
    """Makes the events of a load; the same seed gives the same events, but for their times."""

    def __init__(self, seed: int = 0) -> None:
        self._ads = [ad for ad, _ in campaigns()]
        self._users = [_id("user", number) for number in range(USERS)]
        self._pages = [_id("page", number) for number in range(PAGES)]
        sizes = (len(self._users), len(self._pages), len(self._ads), len(AD_TYPES))
        self._draws = _numbers(np.random.default_rng(seed), (*sizes, len(EVENT_TYPES)))

    def make(self, _first: int, count: int, now_s: float) -> list[tuple[None, bytes]]:
        """So many events, all with the same time; they have no key."""
        at = round(1000 * now_s)
        made: list[tuple[None, bytes]] = []
        for _, (user, page, ad, ad_type, kind) in zip(range(count), self._draws, strict=False):
            value = (
                f'{{"user_id":"{self._users[user]}","page_id":"{self._pages[page]}",'
                f'"ad_id":"{self._ads[ad]}","ad_type":"{AD_TYPES[ad_type]}",'
                f'"event_type":"{EVENT_TYPES[kind]}","event_time":{at},'
                f'"ip_address":"1.2.3.4"}}'
            )
            made.append((None, value.encode()))
        return made


def _id(kind: str, number: int) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{kind} {number}"))


def _numbers(random: np.random.Generator, below: tuple[int, ...]) -> Iterator[list[int]]:
    while True:
        yield from random.integers(0, below, (_BLOCK, len(below))).tolist()
