"""`trilithon run` and `trilithon rescale`, as two people at two terminals would use them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.engines.spark.conftest import until
from tests.engines.spark.flow import job_named
from trilithon.cli.main import app
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.kafka import Kafka
from trilithon.spec.dump import dump_job
from trilithon.spec.job_file import load_job

JOB = job_named("commanded")
# One of the repository's examples runs beside it.
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "one-job" / "job.yaml"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "state"))
    (tmp_path / "job.json").write_text(json.dumps(dump_job(JOB)))
    return tmp_path


@pytest.fixture
def running(state: Path, kafka: EmbeddedBroker) -> Iterator[subprocess.Popen[bytes]]:
    """`trilithon run`, ended with the test whatever happens."""
    create_topics(Kafka(kafka.address), [JOB, load_job(EXAMPLE)])
    files = [str(state / "job.json"), str(EXAMPLE)]
    command = ["run", *files, "--master", "local[40]", "--kafka", kafka.address]
    command += ["--record", str(state / "recorded"), "--for", "10 minutes", "-o", "json"]
    process = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "trilithon", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    yield process
    if process.poll() is None:
        process.terminate()
    process.communicate(timeout=240)


def rescale(*changes: str) -> Any:
    return CliRunner().invoke(app, ["rescale", *changes, "-o", "json"])


@pytest.mark.spark
@pytest.mark.kafka
def test_a_job_is_run_rescaled_from_elsewhere_recorded_and_ended_by_ctrl_c(
    running: subprocess.Popen[bytes], kafka: EmbeddedBroker, state: Path
) -> None:
    answers = []

    def rescaled() -> bool:
        assert running.poll() is None
        answers.append(rescale("commanded", "spread=4", "keyed=1"))
        return bool(answers[-1].exit_code == 0)

    until(rescaled)
    assert json.loads(answers[-1].stdout)["parallelism"] == {"spread": 4, "keyed": 1}
    refused = rescale("commanded", "spread=9")
    assert refused.exit_code != 0
    assert "may hold 4 tasks" in str(refused.exception)
    time.sleep(15)  # it looks every second, and shows what two looks apart tell
    os.kill(running.pid, signal.SIGINT)
    output, _ = running.communicate(timeout=240)
    assert running.returncode == 0
    instances = {
        job["job"]: {row["operator"]: row["parallelism"] for row in job["operators"]}
        for job in json.loads(output)
    }
    assert instances == {
        JOB.id: {"spread": 4, "keyed": 1},
        "shop/recommend": {"parse": 1, "lookup": 1, "pick": 1},
    }
    advice = CliRunner().invoke(app, ["advise", str(state / "recorded"), "-o", "json"])
    assert {job["job"] for job in json.loads(advice.stdout)["jobs"]} == set(instances)


def test_a_span_that_is_none_is_refused(state: Path) -> None:
    for span in ("soon", "0s"):
        done = CliRunner().invoke(app, ["run", str(state / "job.json"), "--for", span])
        assert done.exit_code == 2


def test_a_change_that_is_none_is_refused(state: Path) -> None:
    assert (state / "job.json").exists()
    for change in ("spread", "spread=0", "spread=many"):
        assert rescale("commanded", change).exit_code == 2
