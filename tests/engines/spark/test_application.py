"""An application and its embedded broker, which ends with it or is kept: without Spark."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from tests.cluster import chain
from trilithon.cli import run_command
from trilithon.cli.main import app
from trilithon.engines.spark import application as module
from trilithon.engines.spark.application import Setup, application
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.errors import BrokerUnavailable, EngineFailed
from trilithon.spec.dump import dump_job


@dataclass
class FakeBroker:
    """A broker that knows how it was started and whether it was stopped."""

    detached: bool
    stopped: bool = False
    address: str = "127.0.0.1:9"

    def stop(self) -> None:
        self.stopped = True

    def revive(self) -> bool:
        return False


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> list[FakeBroker]:
    """The brokers that applications start; their Spark is a fake."""
    started: list[FakeBroker] = []

    def start(*, detached: bool, progress: Callable[[str], None]) -> FakeBroker:
        progress("broker: starting")
        started.append(FakeBroker(detached))
        return started[-1]

    monkeypatch.setattr(EmbeddedBroker, "start", start)
    for name in ("check_master", "create_topics", "SparkEngine"):
        monkeypatch.setattr(module, name, MagicMock())
    monkeypatch.setattr(module, "fetch_jars", lambda *_: ())
    monkeypatch.setattr(module, "own_cluster", lambda _: None)
    monkeypatch.setattr(module, "session", lambda *_, **__: nullcontext(MagicMock()))
    return started


def setup(folder: Path, **settings: Any) -> Setup:
    return Setup("local[4]", folder, 4, **settings)


def test_the_embedded_broker_ends_with_its_application(
    brokers: list[FakeBroker], tmp_path: Path
) -> None:
    with application(setup(tmp_path)) as engine:
        (broker,) = brokers
        assert (broker.detached, broker.stopped) == (False, False)
        assert engine.monitor.revive == broker.revive
    assert broker.stopped


def test_a_broker_that_is_kept_outlives_its_application_and_its_process(
    brokers: list[FakeBroker], tmp_path: Path
) -> None:
    with application(setup(tmp_path, keep_broker=True)):
        pass
    assert brokers == [FakeBroker(detached=True, stopped=False)]


@pytest.mark.parametrize("keep", [False, True])
def test_a_broker_is_kept_or_stopped_though_spark_does_not_start(
    brokers: list[FakeBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keep: bool
) -> None:
    monkeypatch.setattr(module, "session", MagicMock(side_effect=EngineFailed("no JVM")))
    with pytest.raises(EngineFailed), application(setup(tmp_path, keep_broker=keep)):
        pytest.fail("it runs")
    assert [broker.stopped for broker in brokers] == [not keep]


def test_why_a_broker_did_not_start_is_what_its_application_says(
    brokers: list[FakeBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = MagicMock(side_effect=BrokerUnavailable("no free port"))
    monkeypatch.setattr(EmbeddedBroker, "start", broken)
    with pytest.raises(BrokerUnavailable, match="no free port"), application(setup(tmp_path)):
        pytest.fail("it runs")


def test_with_a_kafka_of_somebody_else_no_broker_is_started(
    brokers: list[FakeBroker], tmp_path: Path
) -> None:
    with application(setup(tmp_path, kafka="kafka:9092")):
        pass
    assert brokers == []


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str) -> tuple[Any, list[Setup]]:
    """`trilithon run` with an application that is a fake; what it was to set up."""
    monkeypatch.setenv("TRILITHON_STATE", str(folder / "state"))
    setups: list[Setup] = []

    @contextmanager
    def running(setup: Setup, *_: Any) -> Iterator[Any]:
        setups.append(setup)
        yield MagicMock()

    monkeypatch.setattr(run_command, "running", running)
    monkeypatch.setattr(run_command, "watch", lambda *_: [])
    file = folder / "job.yaml"
    file.write_text(json.dumps(dump_job(chain("kept", operators=1))))
    result = CliRunner().invoke(app, ["run", str(file), "--for", "1s", *options])
    return result, setups


def test_run_with_keep_broker_keeps_it_and_says_how_to_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, (kept,) = run(monkeypatch, tmp_path, "--keep-broker")
    assert kept.keep_broker
    assert "The broker goes on; `trilithon broker stop` ends it." in result.output
    result, (ended,) = run(monkeypatch, tmp_path)
    assert not ended.keep_broker
    assert "broker stop" not in result.output


def test_a_broker_of_somebody_else_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, setups = run(monkeypatch, tmp_path, "--keep-broker", "--kafka", "kafka:9092")
    assert (result.exit_code, setups) == (2, [])
    assert "--keep-broker is for the embedded broker" in " ".join(result.output.split())
