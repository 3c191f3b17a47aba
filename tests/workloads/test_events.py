"""The events of Nexmark and of the Yahoo streaming benchmark have what these document."""

import json
from collections import Counter
from typing import Any

import pytest

from tests.cli.test_commands import Terminal
from trilithon.workloads import ad_events, nexmark
from trilithon.workloads.ad_events import AdEvents, campaigns
from trilithon.workloads.nexmark import NexmarkEvents, last_auction, last_person

COUNT = 50_000


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in NexmarkEvents(seed=3).make(0, COUNT, 1e9)]


@pytest.fixture(scope="module")
def bids(events: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    return [(number, event["bid"]) for number, event in enumerate(events) if "bid" in event]


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids(
    events: list[dict[str, Any]],
) -> None:
    for start in range(0, COUNT, 50):
        kinds = [event["event_type"] for event in events[start : start + 50]]
        assert kinds == [0] + [1] * 3 + [2] * 46
    names = ("person", "auction", "bid")
    assert all(names[event["event_type"]] in event for event in events)


def test_ids_are_counted_without_a_gap(events: list[dict[str, Any]]) -> None:
    for name, each in (("person", 1), ("auction", 3)):
        ids = [event[name]["id"] for event in events if name in event]
        assert ids == [*range(1000, 1000 + COUNT // 50 * each)]


def test_half_of_the_bids_go_to_the_hot_auction_and_three_quarters_are_of_the_hot_bidder(
    bids: list[tuple[int, dict[str, Any]]],
) -> None:
    hot = [bid["auction"] == 1000 + last_auction(n) // 100 * 100 for n, bid in bids]
    assert sum(hot) / len(bids) == pytest.approx(0.5, abs=0.02)
    hot = [bid["bidder"] == 1001 + last_person(n) // 100 * 100 for n, bid in bids]
    assert sum(hot) / len(bids) == pytest.approx(0.75, abs=0.02)
    for number, bid in bids:
        # Others are in flight, or up to ten ahead.
        last = last_auction(number)
        assert max(0, last // 100 * 100 - 100) <= bid["auction"] - 1000 <= last + 10
        assert bid["bidder"] - 1000 <= last_person(number) + 10


def test_three_quarters_of_the_auctions_are_of_the_hot_seller(events: list[dict[str, Any]]) -> None:
    auctions = [(n, event["auction"]) for n, event in enumerate(events) if "auction" in event]
    hot = [auction["seller"] == 1000 + last_person(n) // 100 * 100 for n, auction in auctions]
    assert sum(hot) / len(auctions) == pytest.approx(0.75, abs=0.03)
    assert {auction["category"] for _, auction in auctions} == {10, 11, 12, 13, 14}
    assert all(auction["reserve"] > auction["initialBid"] for _, auction in auctions)


def test_half_of_the_bids_come_through_four_channels_and_nine_in_ten_others_name_an_id(
    bids: list[tuple[int, dict[str, Any]]],
) -> None:
    channels = Counter(bid["channel"] for _, bid in bids)
    hot = [channels[name] / len(bids) for name in nexmark.HOT_CHANNEL_NAMES]
    assert hot == pytest.approx([1 / 8] * 4, abs=0.01)
    others = {
        bid["channel"]: bid["url"] for _, bid in bids if bid["channel"].startswith("channel-")
    }
    named = sum("&channel_id=" in url for url in others.values()) / len(others)
    assert named == pytest.approx(0.9, abs=0.02)
    # A channel has one address.
    assert len({(bid["channel"], bid["url"]) for _, bid in bids}) == len(channels)


def test_prices_are_even_over_their_orders_of_magnitude_and_events_have_their_sizes(
    events: list[dict[str, Any]], bids: list[tuple[int, dict[str, Any]]]
) -> None:
    digits = Counter(len(str(bid["price"])) for _, bid in bids)
    for number in range(3, 9):
        assert digits[number] / len(bids) == pytest.approx(1 / 6, abs=0.01)
    extra = [len(bid["extra"]) for _, bid in bids]
    assert sum(extra) / len(extra) == pytest.approx(100 - 4 * 8, abs=2)
    for name, size, plain in (("person", 200, 2), ("auction", 500, 7)):
        sizes = [
            8 * plain
            + sum(len(v) for k, v in event[name].items() if isinstance(v, str) and "ate" not in k)
            for event in events
            if name in event
        ]
        assert sum(sizes) / len(sizes) == pytest.approx(size, rel=0.06)


def test_the_same_seed_gives_the_same_events_however_they_are_asked_for() -> None:
    whole = NexmarkEvents(seed=5).make(0, 100, 1e9)
    parts = NexmarkEvents(seed=5)
    assert whole == [*parts.make(0, 30, 1e9), *parts.make(30, 70, 1e9)]
    assert whole != NexmarkEvents(seed=6).make(0, 100, 1e9)
    ads, again = AdEvents(seed=5), AdEvents(seed=5)
    assert ads.make(0, 100, 1e9) == [*again.make(0, 30, 1e9), *again.make(30, 70, 1e9)]


def test_a_third_of_the_ad_events_are_views_of_ads_of_a_hundred_campaigns() -> None:
    made = [json.loads(value) for _, value in AdEvents().make(0, 30_000, 1e9)]
    kinds = Counter(event["event_type"] for event in made)
    for kind in ad_events.EVENT_TYPES:
        assert kinds[kind] / len(made) == pytest.approx(1 / 3, abs=0.01)
    table = dict(campaigns())
    assert len(table) == 1000
    assert Counter(Counter(table.values()).values()) == {10: 100}
    assert {event["ad_id"] for event in made} == set(table)
    assert {event["event_time"] for event in made} == {10**12}
    fields = [part.split()[0] for part in ad_events.SCHEMA.split(", ")]
    assert [*made[0]] == fields


def test_what_a_benchmark_fixes_cannot_be_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(monkeypatch, capsys)
    options = ("--topic", "t", "--rate", "1", "--kafka", "127.0.0.1:1")
    result = terminal.run("load", *options, "--events", "nexmark", "--keys", "5", "--zipf", "1")
    assert result.code == 10
    assert "--keys, --zipf cannot be chosen for nexmark" in result.err
