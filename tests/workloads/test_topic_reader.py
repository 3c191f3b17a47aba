"""`trilithon peek`: the records of a topic as people want to see them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.cli.test_commands import Terminal
from trilithon.cli.peek_command import _text
from trilithon.cli.record_text import printable
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.workloads.load_generator import ensure_topic
from trilithon.workloads.topic_reader import Record, TopicReader


@pytest.fixture
def terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Terminal:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return Terminal(monkeypatch, capsys)


@pytest.fixture
def topic(kafka: EmbeddedBroker) -> str:
    """A topic of three partitions with 30 records, one of them no JSON and one without a value."""
    name = f"peek-{uuid4().hex}"
    # Their time is long ago: a broker that looks for what is too old would delete them.
    admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
    kept = NewTopic(name, 3, config={"retention.ms": "-1"})
    admin.create_topics([kept])[name].result(120)
    producer = Producer({"bootstrap.servers": kafka.address, "log_level": 0})
    for i in range(30):
        value: str | bytes | None = json.dumps({"n": i})
        value = {7: None, 8: b"\xff no JSON"}.get(i, value)
        producer.produce(
            name,
            value,
            f"k{i}",
            partition=i % 3,
            timestamp=1_700_000_000_000 + i,
            headers=[("trilithon-source", f"in-0-{i}")],
        )
    assert producer.flush(120) == 0
    return name


@pytest.mark.kafka
def test_the_latest_records_of_all_partitions_are_read_in_the_order_of_their_times(
    kafka: EmbeddedBroker, topic: str
) -> None:
    with TopicReader(kafka.address) as reader:
        assert [record.decoded for record in reader.latest(topic, 4)] == [
            {"n": n} for n in (26, 27, 28, 29)
        ]
        everything = reader.latest(topic, 1000)
        assert [record.offset for record in everything] == [i // 3 for i in range(30)]
        assert everything[7].value is None
        assert everything[8].decoded == "\\xff no JSON"
        assert everything[9].headers == (("trilithon-source", "in-0-9"),)
        assert reader.count(topic, [0, 1, 2]) == 30
        assert topic in reader.topics()


@pytest.mark.kafka
def test_peek_prints_records_for_people_and_for_scripts(
    terminal: Terminal, kafka: EmbeddedBroker, topic: str
) -> None:
    source = (topic, "--kafka", kafka.address)
    assert terminal.run("peek", *source, "-n", "1").code == 0
    assert terminal.out.splitlines() == [
        "2023-11-14 22:13:20.029  partition 2  offset 9  key k29  trilithon-source=in-0-29",
        "  {",
        '    "n": 29',
        "  }",
    ]
    assert terminal.run("peek", *source, "-n", "1", "--raw").out.endswith('=in-0-29  {"n": 29}\n')
    (record,) = terminal.json("peek", *source, "-n", "1")
    assert record == {
        "partition": 2,
        "offset": 9,
        "time": "2023-11-14T22:13:20.029+00:00",
        "key": "k29",
        "value": {"n": 29},
        "headers": {"trilithon-source": "in-0-29"},
    }
    assert {"topic": topic, "partitions": 3, "records": 30} in terminal.json(
        "peek", "--kafka", kafka.address
    )
    assert terminal.run("peek", "no-such-topic", "--kafka", kafka.address).code == 7
    assert topic in terminal.err


@pytest.mark.kafka
def test_an_empty_topic_is_said_to_be_empty(terminal: Terminal, kafka: EmbeddedBroker) -> None:
    name = f"peek-{uuid4().hex}"
    ensure_topic(kafka.address, name, 2)
    assert terminal.run("peek", name, "--kafka", kafka.address).out == (
        f"The topic '{name}' is empty.\n"
    )


@pytest.fixture
def following(kafka: EmbeddedBroker, topic: str) -> Iterator[subprocess.Popen[str]]:
    program = Path(sys.executable).with_name("trilithon")
    options = f"{topic} --kafka {kafka.address} -n 1 --follow -o json"
    with subprocess.Popen(  # noqa: S603 - our own program
        [program, "peek", *options.split()], stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.kafka
def test_following_prints_what_comes_and_ends_on_ctrl_c(
    kafka: EmbeddedBroker, topic: str, following: subprocess.Popen[str]
) -> None:
    assert following.stdout is not None
    assert json.loads(following.stdout.readline())["value"] == {"n": 29}
    producer = Producer({"bootstrap.servers": kafka.address, "log_level": 0})
    producer.produce(topic, b'{"n": 30}')
    assert producer.flush(120) == 0
    record = json.loads(following.stdout.readline())
    assert (record["value"], record["key"]) == ({"n": 30}, None)
    os.kill(following.pid, signal.SIGINT)
    assert following.communicate(timeout=120)[0] == ""
    assert following.returncode == 0


def test_without_a_broker_peek_says_how_to_get_one(terminal: Terminal) -> None:
    assert terminal.run("peek", "t").code == 9
    assert "trilithon broker start" in terminal.err


def test_yaml_cannot_be_followed(terminal: Terminal) -> None:
    assert terminal.run("peek", "t", "--follow", "-o", "yaml").code == 2


def test_a_record_cannot_change_the_terminal() -> None:
    """Everybody who may write to a topic could otherwise write to the screen of who reads it."""
    hostile = "\x1b]0;owned\x07\x9b2J"
    assert printable(hostile) == "\\x1b]0;owned\\x07\\x9b2J"
    for raw in (True, False):
        for value in (hostile, json.dumps({"v": hostile}, ensure_ascii=False)):
            shown = str(_text(Record(0, 1, 0.0, hostile, value, ((hostile, hostile),)), raw=raw))
            assert not [c for c in shown if ord(c) < 32 and c != "\n"]
            assert "\x9b" not in shown
