"""`trilithon serve` as users have it: a process of its own, over the
socket of a host that goes on.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cluster import FakeCluster, chain
from tests.fakes import refused
from tests.service.test_api import PATIENCE_S, until
from trilithon.cli import job_commands
from trilithon.cli.log_options import log_arguments
from trilithon.cli.main import app
from trilithon.contract.condition import Cause
from trilithon.contract.engine import Condition, Health, Outcome, Status
from trilithon.engines.host import Host
from trilithon.errors import (
    DaemonRuns,
    DaemonUnreachable,
    InvalidJob,
    NeedsNewCheckpoint,
    NotFound,
)
from trilithon.logs import LogLevel
from trilithon.model.job import Job, Parallelism
from trilithon.model.report import Report
from trilithon.spec.dump import dump_job

JOB = chain()
RULES = """
limits:
  {round_s: 0.2, cool_down_s: 0.5, fresh_s: 0.5, stale_s: 30, series_every_s: 1, down_delay_s: 3600}
policy: threshold
parameters: {window_s: 1}
"""


class LiveCluster(FakeCluster):
    """A cluster whose time is the machine's."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = time.time()

    def reports(self) -> Sequence[Report]:
        self.advance(max(0.001, time.time() - self.now_s))
        return super().reports()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    (tmp_path / "rules.yaml").write_text(RULES)
    return tmp_path / "state"


@pytest.fixture
def cluster(state: Path) -> Iterator[LiveCluster]:
    """A host with its jobs, in this process."""
    cluster_ = LiveCluster()
    host = Host(cluster_, state / "host.sock")
    serving = threading.Thread(target=host.serve, daemon=True)
    serving.start()
    yield cluster_
    host.close()
    serving.join(timeout=PATIENCE_S)


class Serving:
    def __init__(self, state: Path, *options: str) -> None:
        self.state = state
        command = [
            sys.executable,
            "-m",
            "trilithon",
            "serve",
            "--rules",
            str(state.parent / "rules.yaml"),
        ]
        self.process = subprocess.Popen(  # noqa: S603 - ourselves
            [*command, *options], env=os.environ.copy(), stderr=subprocess.PIPE, text=True
        )
        until(
            lambda: (state / "daemon" / "daemon.json").exists() or self.process.poll() is not None
        )

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


Start = Callable[..., Serving]


@pytest.fixture
def serve(state: Path, cluster: LiveCluster) -> Iterator[Start]:
    """Starts daemons. None of them outlives its test."""
    started: list[Serving] = []

    def start(*options: str) -> Serving:
        started.append(Serving(state, *options))
        return started[-1]

    yield start
    for process in started:
        if process.process.poll() is None:
            process.end(signal.SIGKILL)
        elif process.process.stderr is not None:
            process.process.stderr.close()


@pytest.fixture
def serving(serve: Start) -> Serving:
    return serve()


def cli(*arguments: str) -> Any:
    """A command's answer as data. Its errors come through."""
    result = CliRunner().invoke(app, [*arguments, "-o", "json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def write(folder: Path, job: Job) -> str:
    path = folder / f"{job.name}.yaml"
    path.write_text(json.dumps(dump_job(job)))
    return str(path)


def test_from_the_command_line_to_the_cluster_and_back(
    serving: Serving, cluster: LiveCluster, tmp_path: Path
) -> None:
    cluster.rates[JOB.id] = 250.0
    [answer] = cli("job", "apply", write(tmp_path, JOB), "--wait")
    assert answer["generation"] == 1
    assert [row["job"] for row in cli("job", "list")] == [JOB.id]
    until(lambda: cli("job", "get", "chain")["instances"] > 3)
    explanations = cli("explain", "chain")
    assert explanations
    assert cli("cluster", "status")["running"] == 1
    crunch = until(lambda: CliRunner().invoke(app, ["cluster", "crunch"]).stdout)
    assert "intents can be met" in crunch
    assert "ads/chain" in crunch
    top = CliRunner().invoke(app, ["top", "--once"])
    assert "ads/chain" in top.stdout
    # The journal can be asked without the daemon, too.
    journal = serving.state / "daemon" / "journal.sqlite"
    for name in (JOB.id, "chain"):
        assert cli("explain", name, "--journal", str(journal), "--limit", "1000")[
            : len(explanations)
        ]
    assert cli("job", "mode", "chain", "off")["mode"] == "off"
    cli("job", "pause", "chain", "--wait")
    assert cluster.jobs() == {}
    cli("job", "resume", "chain", "--wait")
    assert set(cluster.jobs()) == {JOB.id}
    cli("job", "delete", "chain", "--wait")
    assert cluster.jobs() == {}
    history = cli("job", "history", JOB.id)
    assert history["versions"][0]["standing"] == "past"
    with pytest.raises(NotFound):
        cli("job", "get", "chain")


def printed(*arguments: str) -> tuple[str, str]:
    """What a command prints for people: to stdout, to stderr."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_a_new_job_says_only_that_it_is_new_and_a_finished_one_that_it_runs(
    serving: Serving, cluster: LiveCluster, tmp_path: Path
) -> None:
    """A new job said `Nothing changes.`, and one that was waited for that it would be started."""
    out, err = printed("job", "apply", write(tmp_path, JOB))
    assert out == "ads/chain generation 1: The job is new; the next round starts it.\n"
    assert err == ""
    out, err = printed("job", "apply", write(tmp_path, chain("other")), "--wait")
    assert out == "ads/other generation 1: running.\n"
    assert err == ""
    longer = replace(JOB, batch_s=JOB.batch_s + 1)
    out, err = printed("job", "apply", write(tmp_path, longer), "--wait")
    assert out == "ads/chain generation 2: running.\n"
    assert err.startswith("ads/chain: The job restarts from its checkpoint.")


def test_a_long_problem_leaves_lists_readable_in_a_pipe(
    serving: Serving, cluster: LiveCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 columns were the limit: names shrank to a letter beside a long problem."""
    problem = "It is refused because " + "x" * 500
    monkeypatch.setattr(cluster, "submit", lambda *_: refused("DOES_NOT_FIT", problem))
    printed("job", "apply", write(tmp_path, JOB))
    until(lambda: "not started" in printed("job", "list")[0])
    for command in (("job", "list"), ("top", "--once")):
        lines = printed(*command)[0].splitlines()
        (row,) = (i for i, text in enumerate(lines) if text.startswith("ads/chain"))
        assert "not started" in lines[row]
        assert lines[row + 1].rstrip().endswith(problem)


def test_no_job_is_submitted_if_one_of_them_is_refused(
    serving: Serving, cluster: LiveCluster, tmp_path: Path
) -> None:
    wide = replace(JOB.operators[0], parallelism=Parallelism(1, 1, 5000))
    impossible = replace(JOB, name="wide", operators=(wide, *JOB.operators[1:]))
    files = [write(tmp_path, JOB), write(tmp_path, impossible)]
    with pytest.raises(InvalidJob) as refused:
        cli("job", "apply", *files)
    (problem,) = refused.value.problems
    assert (problem.code, problem.file) == ("TOO_MANY_TASKS", files[1])
    assert cli("job", "list") == []


def test_a_new_version_that_needs_a_new_checkpoint_has_to_be_meant(
    serving: Serving, cluster: LiveCluster, tmp_path: Path
) -> None:
    cli("job", "apply", write(tmp_path, JOB), "--wait")
    data = dump_job(JOB)
    data["sources"][0]["options"]["subscribe"] = "elsewhere"
    path = tmp_path / "other.yaml"
    path.write_text(json.dumps(data))
    assert cli("job", "apply", str(path), "--dry-run")[0]["impact"] == "anew"
    with pytest.raises(Exception, match="cannot continue from its checkpoint") as error:
        cli("job", "apply", str(path))
    assert error.value.exit_code == NeedsNewCheckpoint.exit_code  # type: ignore[attr-defined]
    assert cli("job", "apply", str(path), "--anew")[0]["generation"] == 2


def test_the_end_of_the_daemon_is_not_the_end_of_the_jobs(
    serve: Start, serving: Serving, cluster: LiveCluster, tmp_path: Path
) -> None:
    cli("job", "apply", write(tmp_path, JOB), "--wait")
    assert serving.end() == 0
    assert set(cluster.jobs()) == {JOB.id}
    with pytest.raises(DaemonUnreachable):
        cli("job", "list")
    # The next one takes over what there is.
    serve()
    assert [row["job"] for row in cli("job", "list")] == [JOB.id]
    until(lambda: cli("cluster", "status")["running"] == 1)
    assert cluster.checkpoints[JOB.id] == {"": 1}


def test_a_daemon_that_was_killed_leaves_the_jobs_alone_and_a_new_one_takes_over(
    serve: Start, serving: Serving, cluster: LiveCluster, tmp_path: Path
) -> None:
    cluster.rates[JOB.id] = 250.0
    cli("job", "apply", write(tmp_path, JOB), "--wait")
    assert serving.end(signal.SIGKILL) == -signal.SIGKILL
    assert set(cluster.jobs()) == {JOB.id}
    (serving.state / "daemon" / "daemon.json").unlink()
    serve()
    until(lambda: cli("job", "get", "chain")["instances"] > 3)
    assert cluster.checkpoints[JOB.id] == {"": 1}


def test_with_jobs_ends_both_cleanly(
    serve: Start, state: Path, cluster: LiveCluster, tmp_path: Path
) -> None:
    serving = serve("--with-jobs")
    cli("job", "apply", write(tmp_path, JOB), "--wait")
    assert serving.end() == 0
    assert cluster.closed
    assert not (state / "host.sock").exists()


def test_a_second_daemon_is_refused(serve: Start, serving: Serving) -> None:
    second = serve()
    assert second.process.wait(timeout=PATIENCE_S) == DaemonRuns.exit_code
    assert second.process.stderr is not None
    assert "already" in second.process.stderr.read()
    assert cli("job", "list") == []


def test_a_run_is_recorded_and_replayed(serve: Start, cluster: LiveCluster, tmp_path: Path) -> None:
    cluster.rates[JOB.id] = 250.0
    serving = serve("--record", str(tmp_path / "recording"))
    cli("job", "apply", write(tmp_path, JOB), "--wait")
    until(lambda: cli("job", "get", "chain")["instances"] > 3)
    serving.end()
    rounds = cli("replay", str(tmp_path / "recording"), "--parameter", "window_s=1.0")
    assert any(row["decisions"] for row in rounds)
    assert {row["same_as_recorded"] for row in rounds} == {True}


@pytest.mark.parametrize("rules", ["limits: {round: 3}", "policy: magic", "mode: on"])
def test_rules_that_cannot_be_meant_are_refused_at_the_start(
    serve: Start, state: Path, rules: str
) -> None:
    (state.parent / "rules.yaml").write_text(rules)
    assert serve().process.wait(timeout=PATIENCE_S) in {3, NotFound.exit_code}


def test_with_log_json_everything_on_stderr_is_an_event(serve: Start, cluster: LiveCluster) -> None:
    serving = serve("--log-json", "--log-level", "debug")
    assert serving.process.stderr is not None
    # The host is reached beside the start: a signal must not come before.
    lines, deadline = [serving.process.stderr.readline()], time.monotonic() + PATIENCE_S
    while lines[-1] and "host_attached" not in lines[-1]:
        assert time.monotonic() < deadline, lines
        lines.append(serving.process.stderr.readline())
    serving.process.send_signal(signal.SIGTERM)
    _, errors = serving.process.communicate(timeout=PATIENCE_S)
    events = [json.loads(line) for line in [*lines, *errors.splitlines()]]
    assert "host_attached" in {event["event"] for event in events}
    assert any("listening on" in event.get("message", "") for event in events)


def test_the_host_gets_the_log_options_of_the_daemon() -> None:
    assert log_arguments(LogLevel.DEBUG, as_json=True) == ["--log-level", "debug", "--log-json"]
    assert log_arguments(LogLevel.INFO, as_json=False) == ["--log-level", "info"]


def ends(*arguments: str) -> tuple[int, str]:
    """The exit code of a command, and everything that it printed."""
    result = CliRunner().invoke(app, [*arguments])
    return result.exit_code, result.output


def test_wait_ends_with_1_and_says_what_came_about_instead(
    serving: Serving,
    cluster: LiveCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`job resume --wait` printed `failed` and ended with 0."""
    cli("job", "apply", write(tmp_path, JOB), "--wait")
    reason = "A cast fails. `trilithon job resume ads/chain` starts it again from its checkpoint."
    cluster.condition[JOB.id] = Condition(
        Health.FAILED, reason, Cause.EXPRESSION, time.time() + 3600
    )
    until(lambda: cli("job", "list")[0]["state"] == "failed")
    code, printed = ends("job", "resume", "chain", "--wait")
    assert code == 1
    assert "ads/chain is failed, not running. A cast fails." in printed
    # The same version again: nothing to do, and that says what is.
    code, printed = ends("job", "apply", str(tmp_path / "chain.yaml"), "--wait")
    assert code == 1
    assert "`trilithon job resume ads/chain`" in printed
    cluster.condition.clear()
    assert ends("job", "resume", "chain", "--wait")[0] == 0

    def stuck(job: str, keep: bool = False) -> Outcome:
        return Outcome(Status.FAILED, "ENGINE_FAILED", "The query does not stop.")

    with monkeypatch.context() as patched:
        patched.setattr(cluster, "cancel", stuck)
        patched.setattr(job_commands, "WAIT_S", 2.0)

        def refused_pause() -> tuple[int, str] | None:
            """Once a round has tried to stop the job, and so knows why it cannot."""
            told = ends("job", "pause", "chain", "--wait")
            return told if "The query does not stop." in told[1] else None

        code, printed = until(refused_pause)
        assert code == 1
        assert "is pausing, not paused. The query does not stop." in printed
    assert ends("job", "pause", "chain", "--wait")[0] == 0
    assert ends("job", "delete", "chain", "--wait") == (0, "ads/chain: gone\n")
