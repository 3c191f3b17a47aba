"""The commands, as a user runs them: what they print where, and how they end."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from syrupy.assertion import SnapshotAssertion

from tests.fakes import FakeEngine
from tests.recording.test_recordings import SMALL
from trilithon.cli.main import main
from trilithon.engines.host import Host
from trilithon.errors import EXIT_CODES
from trilithon.model.action import Outcome, Status
from trilithon.model.allocation import initial
from trilithon.recording import parquet
from trilithon.recording.snapshots import snapshot_from_json


class Terminal:
    """Runs commands in a folder and keeps what they print."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        self.out, self.err, self.code = "", "", 0

    def run(self, *arguments: str) -> "Terminal":
        self.monkeypatch.setattr("sys.argv", ["trilithon", *arguments])
        try:
            main()
            self.code = 0
        except SystemExit as end:
            self.code = int(end.code or 0)
        self.out, self.err = self.capsys.readouterr()
        assert self.code in EXIT_CODES
        return self

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json").out)


@pytest.fixture
def terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(monkeypatch, capsys)


BAD = """\
name: bad
sources: [{name: s, options: {subscribe: t}, schema: "v INT"}]
operators: [{name: o, input: s, where: "reflect(v)"}, {name: p, input: o, parallelism: 0}]
sinks: [{name: k, input: p, options: {topic: u}}]
"""


@pytest.mark.parametrize("name", ["job.yaml", "job.py"])
def test_the_example_that_init_writes_is_good(terminal: Terminal, name: str) -> None:
    assert terminal.run("init", name).code == 0
    assert terminal.out == f"{name}\n"
    assert "trilithon validate" in terminal.err
    assert terminal.run("validate", name).code == 0
    assert terminal.run("plan", name).code == 0
    assert "scored" in terminal.out


def test_init_overwrites_nothing_unless_told_to(terminal: Terminal) -> None:
    Path("job.yaml").write_text("mine")
    assert terminal.run("init").code == 6
    assert Path("job.yaml").read_text() == "mine"
    assert "FILE_EXISTS" in terminal.err
    assert terminal.run("init", "--force").code == 0
    assert terminal.run("init", "no/such/folder/job.yaml").code == 4


def test_validate_tells_every_problem_of_every_file(terminal: Terminal) -> None:
    terminal.run("init", "good.yaml")
    Path("bad.yaml").write_text(BAD)
    assert terminal.run("validate", "good.yaml", "bad.yaml", "none.yaml").code == 4
    assert "ok  good.yaml" in terminal.out
    assert "FUNCTION_NOT_ALLOWED" in terminal.out
    assert "OUT_OF_RANGE" in terminal.out
    results = terminal.json("validate", "good.yaml", "bad.yaml")
    assert terminal.code == 3
    assert [r["valid"] for r in results] == [True, False]
    assert results[1]["problems"][0]["line"] == 3


def test_plan_draws_the_graph(terminal: Terminal, snapshot: SnapshotAssertion) -> None:
    Path("dag.yaml").write_text(
        "name: dag\n"
        "sources:\n"
        "  - {name: in, options: {subscribe: t}, schema: v INT, partitions: 4}\n"
        "  - {name: also, options: {subscribe: t2}, schema: v INT}\n"
        "operators:\n"
        "  - {name: split, input: in, parallelism: 2}\n"
        "  - {name: left, input: split, where: v > 1}\n"
        "  - {name: right, input: {from: split, grouping: by_key, key: [v]}}\n"
        "  - {name: merge, inputs: [left, right, also]}\n"
        "sinks:\n"
        "  - {name: out, input: merge, options: {topic: o}}\n"
        "  - {name: log, input: right, options: {topic: l}}\n"
    )
    simulated = ("dag.yaml", "--engine", "simulated")
    assert terminal.run("plan", *simulated).code == 0
    assert terminal.out == snapshot
    plan = terminal.json("plan", *simulated)
    assert (plan["instances"], plan["tasks"]) == (5, 37)
    assert YAML(typ="safe").load(terminal.run("plan", *simulated, "-o", "yaml").out) == plan


def test_plan_prints_what_a_constraint_wants(terminal: Terminal) -> None:
    Path("promised.yaml").write_text(
        "name: promised\n"
        "sources: [{name: in, options: {subscribe: t}, schema: v INT}]\n"
        "operators: [{name: a, input: in}, {name: b, input: a}]\n"
        "sinks: [{name: out, input: b, options: {topic: o}}]\n"
        "intent:\n"
        "  constraints: [{sequence: [in->a, a, a->b, b], at_most: 4 ms, over: 5 seconds}]\n"
    )
    assert terminal.run("plan", "promised.yaml").code == 0
    assert "  wants   mean latency ≤ 4 ms over 5 seconds of in->a, a, a->b, b" in terminal.out


def test_plan_of_a_bad_job_ends_with_its_problems_on_stderr(terminal: Terminal) -> None:
    Path("bad.yaml").write_text(BAD)
    assert terminal.run("plan", "bad.yaml").code == 3
    assert terminal.out == ""
    assert "INVALID_JOB" in terminal.err
    assert "bad.yaml:3" in terminal.err


def test_advise_prints_the_measures(terminal: Terminal, snapshot: SnapshotAssertion) -> None:
    Path("one.json").write_text(json.dumps(SMALL))
    assert terminal.run("advise", "one.json").code == 0
    assert terminal.out == snapshot
    data = terminal.json("advise", "one.json")
    (job,) = data["jobs"]
    assert job["juice"] == 1
    assert job["throughput"] == 100
    assert job["operators"][0]["capacity"] is None  # one instance did not say
    assert data["window_s"] == 60


def test_advise_measures_constraints(terminal: Terminal) -> None:
    (job,) = SMALL["jobs"]
    limit = {"sequence": ["in->work", "work"], "at_most": "30 ms", "over": "10 seconds"}
    instances = [{"index": i, "taken": 3000, "busy_s": 60} for i in range(2)]
    reading = {"from": "in", "to": "work", "transfers": 6000, "channel_s": 90}
    limited = {
        **job,
        "intent": {**job["intent"], "constraints": [limit]},
        "operators": [{"name": "work", "instances": instances}],
        "edges": [reading, job["edges"][1]],
    }
    Path("one.json").write_text(json.dumps({**SMALL, "jobs": [limited]}))
    data = terminal.json("advise", "one.json")
    assert data["jobs"][0]["constraints"] == [
        {
            "sequence": ["in->work", "work"],
            "mean_ms": 35.0,
            "at_most_ms": 30.0,
            "over_s": 10.0,
            "met": False,
        }
    ]
    assert data["jobs"][0]["met"] is False
    assert terminal.run("advise", "one.json").code == 0
    expected = "in->work, work: mean 35.0 ms, at most 30 ms over 10 seconds missed"
    assert expected in terminal.out


def measured_at_work() -> dict[str, Any]:
    """Two instances at 50 % utilisation: 10 ms per record, of which 50 per second come to each."""
    instances = [
        {
            "index": i,
            "sent": 3000,
            "taken": 3000,
            "busy_s": 30,
            "busy_sq_s2": 0.6,
            "gaps": 3000,
            "gap_s": 60,
            "gap_sq_s2": 2.4,
        }
        for i in range(2)
    ]
    reading = {
        "from": "in",
        "to": "work",
        "emitted": 6000,
        "taken": 6000,
        "senders": 1,
        "parked_s": 0,
        "transfers": 6000,
        "channel_s": 66,
        "batching_s": 0,
        "idle_transport_s": 0.001,
        "clock_error_s": 0,
    }
    (job,) = SMALL["jobs"]
    operator = {**job["operators"][0], "instances": instances}
    edges = [reading, job["edges"][1]]
    return {**SMALL, "jobs": [{**job, "operators": [operator], "edges": edges}]}


def test_advise_tells_how_many_instances_a_promise_would_need(terminal: Terminal) -> None:
    Path("one.json").write_text(json.dumps(measured_at_work()))
    question = ("advise", "one.json", "--policy", "latency", "--constraint", "in..work 30 ms")
    (found,) = terminal.json(*question)
    assert found["sequence"] == ["in->work", "work"]
    assert found["mean_ms"] == pytest.approx(21)
    rows = {row["promise_ms"]: row for row in found["promises"]}
    assert list(rows) == [10, 20, 30, 50, 100]
    # One instance of the two is busy: W(p) = 10 ms / (p − 1), and a half of what is left counts.
    assert rows[10]["outcome"] == "out of reach of any parallelism"
    assert {ms: row["total"] for ms, row in rows.items() if ms > 10} == {
        20: 3,
        30: 2,
        50: 2,
        100: 2,
    }
    assert rows[20]["predicted_mean_ms"] == pytest.approx(10 + 1 + 10 / 2)
    assert rows[10]["total"] is None
    assert terminal.run(*question).code == 0
    assert "promise ms" in terminal.out
    assert "Without any waiting it takes 11.0 ms" in terminal.out


def test_the_policy_advises_the_instances_of_its_table(terminal: Terminal) -> None:
    """For a recording without rounds it counted on batching that gives way at once, and asked for
    twice as many.
    """
    recording = measured_at_work()
    (job,) = recording["jobs"]
    limit = {"sequence": ["in->work", "work"], "at_most": "20 ms", "over": "5 seconds"}
    job["intent"] = {"constraints": [limit]}
    Path("one.json").write_text(json.dumps(recording))
    (table,) = terminal.json(
        "advise", "one.json", "--policy", "latency", "--constraint", "in..work 20 ms"
    )
    promised = {row["promise_ms"]: row["instances"] for row in table["promises"]}
    decisions = terminal.json("advise", "one.json", "--policy", "latency")
    changes = [change for decision in decisions for change in decision["changes"]]
    (advised,) = [change["parallelism"] for change in changes if "parallelism" in change]
    assert advised == promised[20] == {"work": 3}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--constraint", "in..work 30 ms"), "--policy latency"),
        (("--policy", "latency", "--constraint", "in..work"), "is not a constraint"),
        (("--policy", "latency", "--constraint", "in..work 0 ms"), "promises no time"),
        (("--policy", "latency", "--constraint", "work 5 ms"), "is not a path"),
        (("--policy", "latency", "--constraint", "in..none 5 ms"), "has no 'none'"),
        (("--policy", "latency", "--constraint", "work..in 5 ms"), "No path leads"),
    ],
)
def test_a_constraint_that_cannot_be_answered_is_refused(
    terminal: Terminal, options: tuple[str, ...], words: str
) -> None:
    Path("one.json").write_text(json.dumps(measured_at_work()))
    assert terminal.run("advise", "one.json", *options).code == 3
    assert words in terminal.err


def test_a_path_to_a_sink_is_answered_with_one_that_is_measured(terminal: Terminal) -> None:
    Path("one.json").write_text(json.dumps(measured_at_work()))
    question = ("advise", "one.json", "--policy", "latency", "--constraint", "in..out 30 ms")
    assert terminal.run(*question).code == 5
    assert "ask for in->work..work" in terminal.err


def test_a_job_that_is_not_measured_does_not_hide_the_tables_of_others(terminal: Terminal) -> None:
    recording, (silent,) = measured_at_work(), SMALL["jobs"]
    recording["jobs"].append({**silent, "name": "silent"})
    Path("two.json").write_text(json.dumps(recording))
    question = ("advise", "two.json", "--policy", "latency", "--constraint", "in..work 30 ms")
    assert terminal.run(*question).code == 0
    assert "ads/mine: in->work, work" in terminal.out
    assert "ads/silent" not in terminal.out
    assert "A part of in..work in ads/silent is not measured." in terminal.err


def test_a_path_that_is_not_measured_is_told(terminal: Terminal) -> None:
    Path("one.json").write_text(json.dumps(SMALL))
    question = ("advise", "one.json", "--policy", "latency", "--constraint", "in..work 30 ms")
    assert terminal.run(*question).code == 5
    assert "not measured" in terminal.err


def test_advise_reads_parquet(terminal: Terminal) -> None:
    first = snapshot_from_json(SMALL)
    second = snapshot_from_json(
        json.loads(json.dumps(SMALL).replace("70", "80").replace("6000", "7000"))
    )
    parquet.write_series(Path("run.parquet"), [first, second])
    data = terminal.json("advise", "run.parquet")
    assert data["snapshots"] == 2
    assert data["jobs"][0]["throughput"] == 100


def test_advise_says_what_a_snapshot_without_a_window_lacks(terminal: Terminal) -> None:
    Path("one.json").write_text(json.dumps({**SMALL, "since_s": None}))
    assert terminal.run("advise", "one.json").code == 5
    assert "since_s" in terminal.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("advise", "none.json"), 4, "FILE_UNREADABLE"),
        (("advise", "bad.json"), 5, "INVALID_RECORDING"),
        (("advise", "one.json", "--policy", "magic"), 7, "magic"),
        (("plan", "."), 4, "FILE_UNREADABLE"),
        (("plan", "none.py"), 4, "FILE_UNREADABLE"),
        (("plan",), 2, "Missing argument"),
        (("fly",), 2, "No such command"),
        (("plan", "x.yaml", "-o", "xml"), 2, "xml"),
    ],
)
def test_what_goes_wrong_has_an_exit_code_and_a_message_on_stderr(
    terminal: Terminal, arguments: tuple[str, ...], code: int, said: str
) -> None:
    Path("bad.json").write_text("{}")
    Path("one.json").write_text(json.dumps(SMALL))
    assert terminal.run(*arguments).code == code
    assert said in terminal.err
    assert "Traceback" not in terminal.err
    assert terminal.out == ""


def test_a_python_file_that_fails_is_told_with_its_line(terminal: Terminal) -> None:
    Path("broken.py").write_text("from trilithon import pipelines as tp\n\n1 / 0\n")
    assert terminal.run("validate", "broken.py").code == 3
    assert "broken.py:3" in terminal.out
    Path("empty.py").write_text("x = 1\n")
    assert terminal.run("plan", "empty.py").code == 3
    assert "tp.job" in terminal.err


def test_a_job_in_square_brackets_is_a_name_and_no_colour(terminal: Terminal) -> None:
    text = json.dumps(SMALL).replace('"work"', '"red"')
    Path("one.json").write_text(text)
    assert terminal.run("advise", "one.json").code == 0
    assert "red" in terminal.out


def test_a_file_that_is_wrong_throughout_does_not_fill_the_screen(terminal: Terminal) -> None:
    Path("bad.yaml").write_text("name: x\n" + "".join(f"k{i}: 1\n" for i in range(500)))
    assert terminal.run("validate", "bad.yaml").code == 3
    assert "more; -o json prints all" in terminal.out
    assert len(terminal.out.splitlines()) < 200


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {}])
def test_a_real_process_prints_to_any_terminal_and_reads_parquet(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """In a process of its own: once, `advise` worked only where a test had imported more."""
    parquet.write_series(tmp_path / "run.parquet", [snapshot_from_json(SMALL)])
    program = Path(sys.executable).with_name("trilithon")
    done = subprocess.run(  # noqa: S603 - our own program
        [program, "advise", "run.parquet"],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ads/mine" in done.stdout


def test_a_full_disk_is_told_in_a_line(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("trilithon")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(  # noqa: S603 - our own program
            [program, "init", tmp_path / "job.yaml"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A host with one job, behind which nothing runs."""
    engine = FakeEngine()
    found = Host(engine, tmp_path / "host.sock")
    serving = threading.Thread(target=found.serve, daemon=True)
    serving.start()
    job = snapshot_from_json(SMALL).jobs["ads/mine"]
    assert engine.submit(job, initial(job)).changed
    yield found
    found.close()
    serving.join(timeout=60)


def test_rescale_changes_a_running_job(terminal: Terminal, host: Host) -> None:
    data = terminal.json("rescale", "mine", "work=4", "--socket", str(host.path))
    assert data == {"job": "ads/mine", "generation": 2, "parallelism": {"work": 4}}
    assert host.engine.jobs()["ads/mine"].allocation.parallelism == {"work": 4}


def test_rescale_says_that_a_job_was_restarted_for_it(
    terminal: Terminal, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "It was restarted with more tasks (work 4 → 12 tasks)."
    restarted = Outcome(Status.DONE, "RESTARTED", message)
    monkeypatch.setattr(host.engine, "apply", lambda _: restarted)
    arguments = ("rescale", "mine", "work=6", "--socket", str(host.path))
    assert f"ads/mine: work ×6. {message}" in terminal.run(*arguments).out
    data = terminal.json(*arguments)
    assert (data["code"], data["message"]) == ("RESTARTED", message)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nobody", "work=2"), 7, "Jobs: ads/mine"),
        (("mine", "sleep=2"), 7, "It has: work"),
        (("mine", "work=99"), 3, "OUT_OF_RANGE"),
        (("mine", "work=none"), 2, "OPERATOR=INSTANCES"),
    ],
)
def test_a_rescale_that_cannot_be_changes_nothing(
    terminal: Terminal, host: Host, arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert terminal.run("rescale", *arguments, "--socket", str(host.path)).code == code
    assert said in terminal.err
    assert host.engine.jobs()["ads/mine"].allocation.generation == 1


def test_without_a_host_rescale_says_so(terminal: Terminal) -> None:
    assert terminal.run("rescale", "mine", "work=2", "--socket", "nothing.sock").code == 12
    assert "HOST_UNREACHABLE" in terminal.err


def test_the_version(terminal: Terminal) -> None:
    assert terminal.run("--version").out.startswith("trilithon ")
