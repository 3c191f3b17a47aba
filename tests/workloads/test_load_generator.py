"""Generating load: records, pace, and what arrives in Kafka."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.test_commands import Terminal
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.workloads.load_generator import BURST_S, Pacer
from trilithon.workloads.records import LEAST_BYTES, Records
from trilithon.workloads.shapes import Constant, Ramp


@pytest.fixture
def terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Terminal:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return Terminal(monkeypatch, capsys)


def read(address: str, topic: str) -> list[tuple[bytes, dict[str, Any], int]]:
    """Everything in a topic: key, value and partition of each record."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": uuid4().hex})
    try:
        parts = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p))[1] for p in parts}
        consumer.assign([TopicPartition(topic, p, 0) for p in parts])
        found: list[tuple[bytes, dict[str, Any], int]] = []
        while len(found) < sum(ends.values()):
            for message in consumer.consume(1000, 10):
                key, value, part = message.key(), message.value(), message.partition()
                assert isinstance(key, bytes)
                assert value is not None
                assert part is not None
                found.append((key, json.loads(value), part))
        return found
    finally:
        consumer.close()


def test_a_record_is_what_the_help_says() -> None:
    ((key, value),) = Records(1, 0).make(1234, 1, 1.5)
    assert key == b"u0"
    assert json.loads(value) == {
        "user": "u0",
        "url": "https://site-0.example/page/234",
        "at": "1970-01-01T00:00:01.500000Z",
        "seq": 1234,
    }


@given(st.integers(LEAST_BYTES, 5000), st.integers(1, 10**6), st.integers(0, 10**15))
def test_a_padded_value_is_exactly_as_large_as_asked(size: int, keys: int, seq: int) -> None:
    made = Records(min(keys, 50), 0.5, size).make(seq, 3, 1e9)
    assert {len(value) for _, value in made} == {size}
    assert [json.loads(value)["seq"] for _, value in made] == [seq, seq + 1, seq + 2]


def test_even_the_longest_value_leaves_room_for_padding() -> None:
    records = Records(1_000_000, 0, LEAST_BYTES)
    assert min(records._room) > len(str(10**18))


def test_users_follow_zipfs_law() -> None:
    count = 50_000
    for exponent in (0.0, 1.1):
        seen = Counter(key for key, _ in Records(100, exponent).make(0, count, 0.0))
        weights = [(i + 1) ** -exponent for i in range(100)]
        for i in (0, 1, 9):
            share = weights[i] / sum(weights)
            assert seen[b"u%d" % i] / count == pytest.approx(share, rel=0.15)


def test_the_same_seed_gives_the_same_records() -> None:
    one, two, other = (Records(50, 1.0, seed=seed).make(0, 100, 0.0) for seed in (1, 1, 2))
    assert one == two != other


def test_a_pace_is_kept_to_the_record() -> None:
    pacer = Pacer(Constant(333.0))
    for tick in range(1, 5001):
        pacer.took(pacer.due(tick * 0.002))
    assert pacer.sent == 3330
    assert pacer.most_behind == 0


def test_a_stall_is_made_up_for_within_the_bound() -> None:
    pacer = Pacer(Constant(1000.0))
    for tick in range(500):
        pacer.took(pacer.due(tick * 0.002))
    ticks = [3.0 + tick * 0.002 for tick in range(3000)]
    sent = []
    for now_s in ticks:
        count = pacer.due(now_s)
        pacer.took(count)
        sent.append(count)
    assert pacer.most_behind == pytest.approx(2000, abs=100)
    assert pacer.behind(ticks[-1]) == 0
    # 2,000 owed and 500 more per second than are due: about four seconds.
    caught_up = next(i for i, now_s in enumerate(ticks) if sum(sent[: i + 1]) + 998 >= 1000 * now_s)
    assert ticks[caught_up] - 3.0 == pytest.approx(4.0, abs=0.2)


@given(
    st.floats(1, 1e4),
    st.floats(1, 1e4),
    st.lists(st.floats(0.0005, 2.0), min_size=2, max_size=60),
)
def test_no_span_of_time_gets_more_than_the_bound(
    low: float, high: float, pauses: list[float]
) -> None:
    pacer = Pacer(Ramp(low, high, 10))
    now_s, log = 0.0, []
    for pause in pauses:
        now_s += pause
        count = pacer.due(now_s)
        pacer.took(count)
        log.append((now_s, count))
        assert pacer.sent <= pacer.shape.total(now_s) + 1
    for i, (start_s, _) in enumerate(log):
        for end_s, _ in log[i:]:
            within = sum(count for at_s, count in log if start_s <= at_s <= end_s)
            bound = pacer.most_per_s * (end_s - start_s + BURST_S)
            assert within <= max(1.0, bound) + 1


@pytest.mark.kafka
def test_load_arrives_as_told(terminal: Terminal, kafka: EmbeddedBroker) -> None:
    for _ in range(5):
        topic = f"load-{uuid4().hex}"
        before = datetime.now(UTC)
        target = f"--topic {topic} --kafka {kafka.address} --partitions 3"
        told = terminal.json(
            *f"load {target} --rate 2000 --for 2s --keys 20 --zipf 1.1 --value-bytes 200".split()
        )
        assert terminal.code == 0
        if told["most_behind"] < 1000:
            break  # a slow machine falls behind the pace: it gets other tries
    assert (told["wanted"], told["failed"]) == (4000, 0)
    # On a busy machine the last moments may be missed; they are owned up to.
    assert (sent := told["sent"]) == 4000 - told["behind_at_end"] > 3000
    assert (told["partitions"], told["bytes"]) == (3, 200 * sent)
    found = read(kafka.address, topic)
    assert sorted(value["seq"] for _, value, _ in found) == list(range(sent))
    assert all(key.decode() == value["user"] for key, value, _ in found)
    assert {part for _, _, part in found} == {0, 1, 2}
    # A user's records are in one partition.
    assert len({(key, part) for key, _, part in found}) == len({key for key, _, _ in found})
    times = sorted(datetime.fromisoformat(value["at"]) for _, value, _ in found)
    assert before < times[0]
    # At a steady pace the middle record comes at half time.
    assert (times[2000] - times[0]).total_seconds() == pytest.approx(1.0, abs=0.5)


@pytest.mark.kafka
def test_a_topic_with_another_number_of_partitions_is_not_taken(
    terminal: Terminal, kafka: EmbeddedBroker
) -> None:
    where = ("load", "--topic", f"load-{uuid4().hex}", "--kafka", kafka.address)
    quick = (*where, "--rate", "10", "--for", "200ms")
    assert terminal.json(*quick, "--partitions", "2")["wanted"] == 2
    assert terminal.run(*quick, "--partitions", "3").code == 10
    assert "has 2 partitions, not 3" in terminal.err
    table = terminal.run(*quick, "--shape", "trace", "--trace", "epa_http_hourly").out
    assert "behind at end" in table


@pytest.mark.kafka
def test_records_that_kafka_refuses_are_not_counted_as_sent(
    terminal: Terminal, kafka: EmbeddedBroker
) -> None:
    """Failures that came in during the last flush were once overwritten by its result, and a load
    whose broker had died said that everything was sent.
    """
    topic = f"load-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
    small = NewTopic(topic, 1, 1, config={"max.message.bytes": "200"})
    admin.create_topics([small])[topic].result(120)
    Path("late").write_text("linger.ms=900\n")  # so that all of them come in then
    target = f"--topic {topic} --kafka {kafka.address} --kafka-settings late"
    told = terminal.json(*f"load {target} --rate 200 --for 300ms --value-bytes 900".split())
    assert told["sent"] == 0
    assert told["failed"] + told["behind_at_end"] == told["wanted"] == 60
    assert terminal.code == 9
    assert "were not delivered" in terminal.err


@pytest.mark.kafka
def test_ctrl_c_ends_a_load_with_its_summary(kafka: EmbeddedBroker) -> None:
    program = Path(sys.executable).with_name("trilithon")
    options = f"--topic load-{uuid4().hex} --rate 100 --for 1h --kafka {kafka.address} -o json"
    with subprocess.Popen(  # noqa: S603 - our own program
        [program, "load", *options.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as load:
        try:
            assert load.stderr is not None
            assert load.stdout is not None
            while "of 3600 s, 0" in load.stderr.readline():
                pass  # nothing is delivered yet
            os.kill(load.pid, signal.SIGINT)
            told = json.loads(load.communicate(timeout=120)[0])
            assert load.returncode == 130
        finally:
            load.kill()
    assert told["interrupted"] is True
    assert told["sent"] > 0
    assert told["sent"] + told["failed"] + told["behind_at_end"] == told["wanted"]


@pytest.mark.kafka
def test_a_load_says_when_its_broker_is_gone_and_ends_at_once_on_ctrl_c(tmp_path: Path) -> None:
    """It counted on as if all was well, and Ctrl-C took 35 s."""
    program = Path(sys.executable).with_name("trilithon")
    with EmbeddedBroker.start(tmp_path / "broker") as broker:
        options = f"--topic t --rate 100 --for 1h --kafka {broker.address} -o json"
        with subprocess.Popen(  # noqa: S603 - our own program
            [program, "load", *options.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as load:
            try:
                assert load.stderr is not None
                assert load.stdout is not None
                while "of 3600 s, 0" in (line := load.stderr.readline()):
                    pass  # nothing is delivered yet
                assert "does not answer" not in line
                os.kill(broker.pid, signal.SIGKILL)
                killed = time.monotonic()
                while "does not answer" not in (line := load.stderr.readline()):
                    assert time.monotonic() - killed < 120
                assert f"waiting: Kafka at {broker.address} does not answer" in line
                os.kill(load.pid, signal.SIGINT)
                interrupted = time.monotonic()
                told = json.loads(load.communicate(timeout=120)[0])
                assert load.returncode == 130
                assert time.monotonic() - interrupted < 30
            finally:
                load.kill()
    assert told["interrupted"] is True
    assert told["failed"] > 0
    assert told["sent"] + told["failed"] + told["behind_at_end"] == told["wanted"]


def test_without_a_kafka_one_is_told_how_to_get_one(terminal: Terminal) -> None:
    assert terminal.run("load", "--topic", "t", "--rate", "5").code == 9
    assert "trilithon broker start" in terminal.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--rate", "0"), 2, "above 0"),
        (("--rate", "nan"), 2, "above 0"),
        (("--rate", "5", "--for", "soon"), 2, "not a duration"),
        (("--rate", "5", "--for", "0s"), 2, "above 0"),
        (("--rate", "5", "--value-bytes", "20"), 2, "160"),
        (("--rate", "5", "--shape", "trace"), 10, "belong together"),
        (("--rate", "5", "--trace", "epa_http_hourly"), 10, "belong together"),
        (("--rate", "5", "--shape", "trace", "--trace", "no.csv"), 4, "no.csv"),
        (("--rate", "5", "--shape", "trace", "--trace", "gap.csv"), 10, "gap.csv:3"),
        (("--rate", "5", "--kafka", "x:1", "--kafka-settings", "none"), 4, "none"),
        (("--rate", "5", "--kafka", "x:1", "--kafka-settings", "gap.csv"), 3, "gap.csv:1"),
        (("--rate", "5", "--kafka", "x:1", "--kafka-settings", "wrong"), 9, "no.such.setting"),
    ],
)
def test_bad_input_is_refused(
    terminal: Terminal, arguments: tuple[str, ...], code: int, says: str
) -> None:
    Path("gap.csv").write_text("hour,requests\n0,5\n2,5\n")
    Path("wrong").write_text("# of a client\n\nno.such.setting = 1\n")
    assert terminal.run("load", "--topic", "t", *arguments).code == code
    assert says in terminal.err
