"""Streams of events: snapshots each round, nothing of other tenants, slow clients dropped."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.cluster import chain
from tests.service.test_access import Clock, token_for
from tests.service.test_api import PATIENCE_S, until
from trilithon.errors import TooManyRequests
from trilithon.service.access.gate import Access
from trilithon.service.access.roles import Caller, Role
from trilithon.service.access.sessions import LIFETIME_S
from trilithon.service.access.store import AccessStore
from trilithon.service.daemon import Daemon
from trilithon.service.monitor import hub as hub_module
from trilithon.service.monitor import snapshots
from trilithon.service.monitor.facts import JobFacts
from trilithon.service.monitor.hub import PING, QUEUE, Hub
from trilithon.service.monitor.monitor import event_data
from trilithon.service.monitor.snapshots import RoundSnapshot

OWNER = Caller("owner", "owner", {}, cluster_admin=True)
ADS = Caller("ads", "ads", {"ads": Role.VIEWER})


def open_hub(running: Daemon) -> Hub:
    """A hub that nobody publishes to, for callers without tokens."""
    return Hub(running.journal, event_data, lambda _: True)


def known_caller(running: Daemon, **grants: str) -> Caller:
    """The caller of a token that the daemon has; the owner without grants."""
    secret = token_for(running, **grants) if grants else running.token
    caller = running.access.caller_of_token(secret)
    assert caller is not None
    return caller


def decoded(message: bytes) -> list[tuple[str, Any]]:
    """The events of a message."""
    events = []
    for text in message.decode().strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in text.splitlines())
        events.append((lines["event"], json.loads(lines["data"])))
    return events


async def read(
    hub: Hub, caller: Caller, enough: Callable[[list[tuple[str, Any]]], bool], **given: Any
) -> list[tuple[str, Any]]:
    given = {"after": None, "snapshots": False, "stopping": lambda: False, **given}
    seen: list[tuple[str, Any]] = []
    async for message in hub.stream(caller, given.pop("after"), **given):
        if message != PING:
            seen += decoded(message)
        if enough(seen):
            break
    return seen


def test_each_round_brings_a_snapshot_of_the_callers_jobs(running: Daemon) -> None:
    hub = running.monitor.hub
    for job in (chain("mine", "ads"), chain("secret", "shop")):
        running.commands.apply(job)
    # A job counts in the totals from the round on that knows its utility.
    until(lambda: [job.utility for job in running.monitor.last.jobs.values()] == [1.0, 1.0])

    def two(seen: list[tuple[str, Any]]) -> bool:
        return sum(kind == "snapshot" for kind, _ in seen) >= 2

    async def both() -> Any:
        return await asyncio.gather(
            read(hub, known_caller(running, ads="viewer"), two, snapshots=True),
            read(hub, known_caller(running), two, snapshots=True),
        )

    ads, owner = asyncio.run(both())
    first, second = (data for kind, data in ads if kind == "snapshot")
    assert [job["job"] for job in first["jobs"]] == ["ads/mine"]
    assert second["round"] > first["round"]
    assert first["max_utility"] == 1.0
    assert "secret" not in json.dumps(ads)
    assert len(next(data for kind, data in owner if kind == "snapshot")["jobs"]) == 2
    assert hub.clients == 0


def test_events_before_and_after_the_connection_come_once_each(running: Daemon) -> None:
    running.commands.apply(chain("one"))
    until(lambda: running.journal.last_event() >= 2)

    async def follow() -> list[tuple[str, Any]]:
        last = lambda seen: any(data["job"] == "ads/two" for _, data in seen)  # noqa: E731
        reading = asyncio.create_task(read(open_hub(running), OWNER, last, after=0))
        await asyncio.sleep(0.3)
        running.commands.apply(chain("two"))
        return await asyncio.wait_for(reading, PATIENCE_S)

    ids = [data["id"] for _, data in asyncio.run(follow())]
    assert ids == list(range(1, ids[-1] + 1))


def test_a_client_that_does_not_read_is_dropped_and_the_others_go_on(running: Daemon) -> None:
    hub = open_hub(running)
    facts = running.monitor.last

    async def one_slow() -> tuple[int, int, list[bytes]]:
        slow = hub.stream(OWNER, None, snapshots=True, stopping=lambda: False)
        fast = hub.stream(OWNER, None, snapshots=True, stopping=lambda: False)
        assert await anext(slow) == PING
        assert await anext(fast) == PING
        received = []
        for i in range(QUEUE + 10):
            hub.publish(replace(facts, number=i))
            received.append(await asyncio.wait_for(anext(fast), PATIENCE_S))
        left = [message async for message in slow]  # it ends by itself
        await fast.aclose()
        return len(received), hub.dropped, left

    received, dropped, left = asyncio.run(one_slow())
    assert received == QUEUE + 10
    assert dropped == 1
    assert len(left) <= QUEUE + 1
    assert hub.clients == 0


def test_a_burst_of_events_makes_nobody_look_slow(running: Daemon) -> None:
    """More events at once than messages may wait dropped every client."""
    hub = open_hub(running)
    running.stop()

    async def burst() -> list[tuple[str, Any]]:
        stream = hub.stream(OWNER, None, snapshots=False, stopping=lambda: False)
        await anext(stream)
        first = running.journal.last_event()
        for i in range(3 * QUEUE):
            running.journal.event("warning", "ads/x", f"{i}", 1.0)
        seen: list[tuple[str, Any]] = []
        while len(seen) < 3 * QUEUE:
            message = await asyncio.wait_for(anext(stream), PATIENCE_S)
            seen += [] if message == PING else decoded(message)
        await stream.aclose()
        assert seen[0][1]["id"] == first + 1
        return seen

    assert [data["text"] for _, data in asyncio.run(burst())] == [str(i) for i in range(3 * QUEUE)]
    assert hub.dropped == 0


def test_a_snapshot_is_the_same_in_a_stream_and_in_an_answer(
    running: Daemon, client: TestClient
) -> None:
    for job in (chain("mine", "ads"), chain("secret", "shop"), chain("also-mine", "ads")):
        running.commands.apply(job)
    until(lambda: len(running.monitor.last.jobs) == 3)
    until(lambda: all(job.utility is not None for job in running.monitor.last.jobs.values()))
    running.stop()
    snapshot = RoundSnapshot(running.monitor.last)
    for caller, jobs in ((OWNER, 3), (ADS, 2), (Caller("x", "x", {"none": Role.VIEWER}), 0)):
        assert json.loads(snapshot.text(caller)) == snapshot.data(caller)
        assert len(snapshot.data(caller)["jobs"]) == snapshot.data(caller)["max_utility"] == jobs
    assert client.get("/snapshot").json() == snapshot.data(OWNER)


def test_a_job_is_made_into_text_once_however_many_callers_see_it(
    running: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.commands.apply(chain("mine", "ads"))
    until(lambda: len(running.monitor.last.jobs) == 1)
    running.stop()
    made: list[str] = []
    job_data = snapshots.job_data

    def counted(job: JobFacts) -> dict[str, Any]:
        made.append(job.job)
        return job_data(job)

    monkeypatch.setattr(snapshots, "job_data", counted)
    snapshot = RoundSnapshot(running.monitor.last)
    for caller in (OWNER, ADS, Caller("e", "e", {"ads": Role.EDITOR, "shop": Role.VIEWER})):
        assert "ads/mine" in snapshot.text(caller)
    assert made == ["ads/mine"]


def test_a_quiet_stream_shows_that_it_lives(
    running: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "PING_EVERY_S", 0.5)
    hub = open_hub(running)
    running.stop()

    async def quiet() -> list[bytes]:
        stream = hub.stream(OWNER, None, snapshots=False, stopping=lambda: False)
        messages = [await asyncio.wait_for(anext(stream), 30) for _ in range(3)]
        await stream.aclose()
        return messages

    assert asyncio.run(quiet()) == [PING] * 3


def test_events_name_no_job_of_another_tenant(running: Daemon) -> None:
    for job in (chain("mine", "ads"), chain("secret", "shop")):
        running.commands.apply(job)
    running.stop()
    hub, before = open_hub(running), running.journal.last_event()
    told = "Took 2 slots from shop/secret, for ads/mine (at/shop/secret/x); 7 records/s."

    async def both() -> tuple[str, str]:
        texts = []
        for caller in (ADS, OWNER):
            stream = hub.stream(caller, None, snapshots=False, stopping=lambda: False)
            await anext(stream)
            running.journal.event("decided", "ads/mine", told, 1.0)
            texts.append(decoded(await asyncio.wait_for(anext(stream), 30))[0][1]["text"])
            await stream.aclose()
        again = hub.stream(ADS, before, snapshots=False, stopping=lambda: False)
        await anext(again)
        past = decoded(await asyncio.wait_for(anext(again), 30))
        await again.aclose()
        assert [data["text"] for _, data in past] == [texts[0]] * 2
        return texts[0], texts[1]

    ads, owner = asyncio.run(both())
    assert owner == told
    assert ads == told.replace("shop/secret", "another tenant's job")


def test_the_number_of_streams_is_bounded(running: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_CLIENTS_PER_TOKEN", 2)
    hub = open_hub(running)

    async def three() -> None:
        streams = [hub.stream(ADS, None, snapshots=False, stopping=lambda: False) for _ in range(2)]
        for stream in streams:
            await anext(stream)
        with pytest.raises(TooManyRequests):
            hub.admit(ADS)
        hub.admit(OWNER)
        for stream in streams:
            await stream.aclose()
        hub.admit(ADS)

    asyncio.run(three())


def test_a_round_waits_for_no_client(running: Daemon) -> None:
    """Publishing to nobody, and after the server has ended, does nothing."""
    hub = open_hub(running)
    hub.publish(running.monitor.last)

    async def connect() -> None:
        stream = hub.stream(OWNER, None, snapshots=True, stopping=lambda: False)
        await anext(stream)

    asyncio.run(connect())
    hub.publish(running.monitor.last)


class AccessByHand:
    """Two tokens and two sessions, with a clock that a test sets."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = AccessStore(None, self.clock)
        self.access = Access(self.store, "local secret", self.clock)
        self.token, self.secret = self.store.create("a", {"ads": Role.VIEWER}, expires_s=5000.0)
        _, self.lasting_secret = self.store.create("b", {"ads": Role.VIEWER})
        opened = [self.access.log_in(secret) for secret in (self.secret, "local secret")]
        self.session, self.owner_session = (one for one in opened if one is not None)

    def callers(self) -> dict[str, Caller]:
        """Everybody who is connected, by how they were identified."""
        found = {
            "token": self.access.caller_of_token(self.secret),
            "session": self.access.caller_of_cookie(self.session.secret),
            "another token": self.access.caller_of_token(self.lasting_secret),
            "owner": self.access.caller_of_token("local secret"),
            "owner's session": self.access.caller_of_cookie(self.owner_session.secret),
        }
        return {name: caller for name, caller in found.items() if caller is not None}

    def revoke(self) -> None:
        self.store.revoke(self.token.id)

    def expire(self) -> None:
        self.clock.now_s = 5000.0

    def log_out(self) -> None:
        self.access.sessions.end(self.session.secret)

    def wait_half_a_day(self) -> None:
        self.clock.now_s += LIFETIME_S


@pytest.mark.parametrize(
    ("happens", "ended"),
    [
        (AccessByHand.revoke, {"token", "session"}),
        (AccessByHand.expire, {"token", "session"}),
        (AccessByHand.log_out, {"session"}),
        (AccessByHand.wait_half_a_day, {"token", "session", "owner's session"}),
    ],
)
def test_a_stream_ends_with_its_token_or_session(
    running: Daemon, happens: Callable[[AccessByHand], None], ended: set[str]
) -> None:
    """The caller was checked when the stream began, and never again."""
    running.stop()
    known = AccessByHand()
    hub = Hub(running.journal, event_data, known.access.is_valid)

    async def watch() -> None:
        streams = {
            name: hub.stream(caller, None, snapshots=True, stopping=lambda: False)
            for name, caller in known.callers().items()
        }
        assert len(streams) == 5
        for stream in streams.values():
            assert await anext(stream) == PING
        happens(known)
        hub.publish(running.monitor.last)  # it waits in every queue when the callers are checked
        async with asyncio.timeout(PATIENCE_S):
            while hub.clients > len(streams) - len(ended):  # noqa: ASYNC110 - as seen outside
                await asyncio.sleep(0.05)
            for name in ended:
                assert b"".join([message async for message in streams[name]]) == b""
            for name in streams.keys() - ended:
                assert b"event: snapshot" in await anext(streams[name])
                await streams[name].aclose()

    asyncio.run(watch())
    known.store.close()
    assert hub.dropped == 0  # nobody was slow


def test_the_daemons_own_streams_end_when_their_token_is_revoked(running: Daemon) -> None:
    token, secret = running.access.store.create("eyes", {"ads": Role.VIEWER})
    caller = running.access.caller_of_token(secret)
    assert caller is not None

    async def watch() -> None:
        hub = running.monitor.hub
        stream = hub.stream(caller, None, snapshots=True, stopping=lambda: False)
        await anext(stream)
        running.access.store.revoke(token.id)
        async with asyncio.timeout(PATIENCE_S):
            async for _ in stream:
                pass

    asyncio.run(watch())
    assert running.monitor.hub.clients == 0
