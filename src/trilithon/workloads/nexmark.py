"""Makes the events of Nexmark: persons, auctions and bids of an online auction, as JSON.

Of 50 events one is a person, three are auctions and 46 are bids, in this order. Ids follow from the
number of the event, so an event refers to persons and auctions that exist (or are about to: up to
ten ahead). Half of the bids go to the hot auction, the first of each hundred; three quarters are of
the hot bidder, the second of each hundred persons; three quarters of the auctions are of the hot
seller, the first of them. Half of the bids come through one of four channels. Proportions, ratios,
ranges and average sizes are those of github.com/nexmark/nexmark; texts are random letters.
"""

import json
from collections.abc import Iterator
from typing import Final

import numpy as np

from trilithon.workloads.records import timestamp

PERSONS: Final = 1
AUCTIONS: Final = 3
BIDS: Final = 46
EVENTS: Final = PERSONS + AUCTIONS + BIDS
# What an event is: the field `event_type`.
PERSON, AUCTION, BID = range(3)

FIRST_ID: Final = 1000  # of persons and of auctions
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
HOT_EVERY: Final = 100  # one of so many persons or auctions is hot
HOT_AUCTIONS: Final = 1 / 2  # the part of the bids for a hot auction
HOT_BIDDERS: Final = 3 / 4
HOT_SELLERS: Final = 3 / 4
HOT_CHANNELS: Final = 1 / 2
ACTIVE_PERSONS: Final = 1000
AUCTIONS_IN_FLIGHT: Final = 100
AHEAD: Final = 10
CHANNELS: Final = 10_000
CHANNELS_WITH_ID: Final = 9 / 10
# How long an auction runs on average, in seconds, if nobody says what the rate is.
AUCTION_S: Final = 10.0
# Average bytes of an event without the names of its fields.
_PERSON_BYTES, _AUCTION_BYTES, _BID_BYTES = 200, 500, 100
_NUMBER_BYTES: Final = 8  # what a number or a time counts for
_TEXTS: Final = frozenset("name emailAddress creditCard city state itemName description".split())
_NOT_COUNTED: Final = frozenset(("channel", "url"))

_STATES: Final = "AZ CA ID OR WA WY".split()
_CITIES: Final = (
    "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne".split(",")
)
_FIRST_NAMES: Final = "Peter Paul Luke John Saul Vicky Kate Julie Sarah Deiter Walter".split()
_LAST_NAMES: Final = "Shultz Abrams Spencer White Bartels Walton Smith Jones Noris".split()
HOT_CHANNEL_NAMES: Final = ("Google", "Facebook", "Baidu", "Apple")

BID_TYPE: Final = (
    "STRUCT<auction: BIGINT, bidder: BIGINT, price: BIGINT, channel: STRING, url: STRING,"
    " dateTime: TIMESTAMP, extra: STRING>"
)
AUCTION_TYPE: Final = (
    "STRUCT<id: BIGINT, itemName: STRING, description: STRING, initialBid: BIGINT,"
    " reserve: BIGINT, dateTime: TIMESTAMP, expires: TIMESTAMP, seller: BIGINT, category: BIGINT,"
    " extra: STRING>"
)
PERSON_TYPE: Final = (
    "STRUCT<id: BIGINT, name: STRING, emailAddress: STRING, creditCard: STRING, city: STRING,"
    " state: STRING, dateTime: TIMESTAMP, extra: STRING>"
)
SCHEMA: Final = f"event_type INT, person {PERSON_TYPE}, auction {AUCTION_TYPE}, bid {BID_TYPE}"
_LETTERS: Final = 1 << 16
_BLOCK: Final = 8192


def last_person(number: int) -> int:
    """The person that was made last when an event is due, counted from 0."""
    epoch, place = divmod(number, EVENTS)
    return epoch * PERSONS + min(place, PERSONS - 1)


def last_auction(number: int) -> int:
    """The auction that was made last when an event is due, counted from 0; -1 before the first."""
    epoch, place = divmod(number, EVENTS)
    return epoch * AUCTIONS + min(place - PERSONS, AUCTIONS - 1)


def kind_of(number: int) -> int:
    place = number % EVENTS
    return PERSON if place < PERSONS else AUCTION if place < PERSONS + AUCTIONS else BID


class NexmarkEvents:
    """Makes the events of a load; the same seed gives the same events, but for their times."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        letters = random.integers(ord("a"), ord("z") + 1, _LETTERS, dtype=np.uint8)
        self._letters = bytes(letters).decode()
        self._draws = _uniform(random)
        self._hot_urls = [self._address() for _ in HOT_CHANNEL_NAMES]
        self._urls: dict[int, str] = {}

    def make(self, first: int, count: int, now_s: float) -> list[tuple[None, bytes]]:
        """The events from a number on, all with the same time; they have no key."""
        at, made = timestamp(now_s).decode(), []
        for number in range(first, first + count):
            kind = kind_of(number)
            if kind == BID:
                name, fields, size = "bid", self._bid(number), _BID_BYTES
            elif kind == AUCTION:
                name, fields, size = "auction", self._auction(number, now_s), _AUCTION_BYTES
            else:
                name, fields, size = "person", self._person(number), _PERSON_BYTES
            fields["dateTime"] = at
            fields["extra"] = self._padding(fields, size)
            event = {"event_type": kind, name: fields}
            made.append((None, json.dumps(event, separators=(",", ":")).encode()))
        return made

    def _person(self, number: int) -> dict[str, object]:
        first, last = self._one_of(_FIRST_NAMES), self._one_of(_LAST_NAMES)
        card = " ".join(f"{self._below(10_000):04d}" for _ in range(4))
        return {
            "id": FIRST_ID + last_person(number),
            "name": f"{first} {last}",
            "emailAddress": f"{self._text(7)}@{self._text(5)}.com",
            "creditCard": card,
            "city": self._one_of(_CITIES),
            "state": self._one_of(_STATES),
        }

    def _auction(self, number: int, now_s: float) -> dict[str, object]:
        hot = next(self._draws) < HOT_SELLERS
        seller = _hot(last_person(number)) if hot else self._active_person(number)
        price = self._price()
        ends_s = now_s + 2 * AUCTION_S * next(self._draws)
        return {
            "id": FIRST_ID + last_auction(number),
            "itemName": self._text(3 + self._below(18)),
            "description": self._text(3 + self._below(98)),
            "initialBid": price,
            "reserve": price + self._price(),
            "expires": timestamp(ends_s).decode(),
            "seller": FIRST_ID + seller,
            "category": FIRST_CATEGORY + self._below(CATEGORIES),
        }

    def _bid(self, number: int) -> dict[str, object]:
        last = last_auction(number)
        if next(self._draws) < HOT_AUCTIONS:
            auction = _hot(last)
        else:
            oldest = max(0, last - AUCTIONS_IN_FLIGHT)
            auction = oldest + self._below(last - oldest + 1 + AHEAD)
        # The hot bidder is not the hot seller.
        hot = next(self._draws) < HOT_BIDDERS
        bidder = _hot(last_person(number)) + 1 if hot else self._active_person(number)
        channel, url = self._channel()
        return {
            "auction": FIRST_ID + auction,
            "bidder": FIRST_ID + bidder,
            "price": self._price(),
            "channel": channel,
            "url": url,
        }

    def _active_person(self, number: int) -> int:
        persons = last_person(number) + 1
        active = min(persons, ACTIVE_PERSONS)
        return persons - active + self._below(active + AHEAD)

    def _channel(self) -> tuple[str, str]:
        if next(self._draws) < HOT_CHANNELS:
            hot = self._below(len(HOT_CHANNEL_NAMES))
            return HOT_CHANNEL_NAMES[hot], self._hot_urls[hot]
        channel = self._below(CHANNELS)
        if (url := self._urls.get(channel)) is None:
            url = self._address()
            if next(self._draws) < CHANNELS_WITH_ID:
                url += f"&channel_id={_reversed(channel)}"
            self._urls[channel] = url
        return f"channel-{channel}", url

    def _address(self) -> str:
        folders = "/".join(self._text(3 + self._below(3)) for _ in range(3))
        return f"https://www.nexmark.com/{folders}/item.htm?query=1"

    def _price(self) -> int:
        """In cents: as many below one dollar as between ten and a hundred, up to a million."""
        return round(100 * 10 ** (6 * next(self._draws)))

    def _padding(self, fields: dict[str, object], average: int) -> str:
        """Letters that bring an event to its average size, a fifth of what is missing more or
        less.
        """
        used = sum(
            len(str(value)) if name in _TEXTS else _NUMBER_BYTES
            for name, value in fields.items()
            if name not in _NOT_COUNTED
        )
        missing = average - used
        if missing <= 0:
            return ""
        spread = round(0.2 * missing)
        return self._text(missing - spread + (self._below(2 * spread) if spread else 0))

    def _text(self, length: int) -> str:
        start = self._below(_LETTERS - length)
        return self._letters[start : start + length]

    def _one_of(self, names: list[str]) -> str:
        return names[self._below(len(names))]

    def _below(self, bound: int) -> int:
        return int(next(self._draws) * bound)


def _hot(last: int) -> int:
    return last // HOT_EVERY * HOT_EVERY


def _reversed(number: int) -> int:
    """The 32 bits of a number in reverse order, as a signed number without its sign."""
    bits = int(f"{number:032b}"[::-1], 2)
    return abs(bits - (1 << 32) if bits >= 1 << 31 else bits)


def _uniform(random: np.random.Generator) -> Iterator[float]:
    while True:
        yield from random.random(_BLOCK).tolist()
