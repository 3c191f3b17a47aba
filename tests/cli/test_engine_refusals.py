"""What the Spark engine would refuse is said before anything starts: by `validate`, `plan`, `run`
and `job apply`, with the line of the file.
"""

import json
from pathlib import Path

import pytest

from tests.cli.test_commands import Terminal

SOURCE = "sources: [{name: in, options: {subscribe: t}, schema: 'v INT, at TIMESTAMP'}]\n"
SINK = "sinks: [{name: out, input: last, options: {topic: o}}]\n"
BROADCAST = f"""\
name: broadcast
{SOURCE}operators:
  - {{name: first, input: in}}
  - {{name: last, inputs: [in, {{from: first, grouping: broadcast}}]}}
{SINK}"""
GROUPED = f"""\
name: grouped
{SOURCE}operators:
  - {{name: last, input: in, where: v > 0, group_by: [v], aggregate: {{n: "count(*)"}}}}
{SINK}"""
WIDE = f"""\
name: wide
{SOURCE}operators:
  - {{name: last, input: in, parallelism: {{initial: 1, min: 1, max: 5000}}}}
{SINK}"""
TWICE = f"""\
name: twice
{SOURCE}operators: [{{name: last, input: in}}]
sinks:
  - {{name: a, input: last, options: {{topic: o}}}}
  - {{name: b, input: last, options: {{topic: o}}}}
"""
REFUSED = [
    (BROADCAST, "BROADCAST_EDGE", 5),
    (GROUPED, "STATEFUL_OPERATOR", 4),
    (WIDE, "TOO_MANY_TASKS", 4),
    (TWICE, "TOPIC_WRITTEN_TWICE", 6),
]
PYTHON = """\
from trilithon import pipelines as tp


@tp.source(subscribe="t")
def numbers():
    return "v INT"


@tp.operator(parallelism={"initial": 1, "min": 1, "max": 5000})
def last(numbers):
    return numbers


@tp.sink(topic="o")
def out(last): ...


job = tp.job("wide")
"""


@pytest.fixture
def terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(monkeypatch, capsys)


@pytest.mark.parametrize(("text", "code", "line"), REFUSED)
def test_validate_says_what_spark_refuses_and_the_simulated_cluster_does_not(
    terminal: Terminal, text: str, code: str, line: int
) -> None:
    Path("job.yaml").write_text(text)
    assert terminal.run("validate", "job.yaml").code == 3
    assert f"job.yaml:{line} {code}" in terminal.out
    assert "on Spark" in terminal.out
    assert "--engine simulated" in terminal.out
    (result,) = terminal.json("validate", "job.yaml")
    assert result["valid"] is False
    assert result["problems"][0]["code"] == code
    assert terminal.run("validate", "--engine", "simulated", "job.yaml").code == 0


@pytest.mark.parametrize(("text", "code", "line"), REFUSED)
def test_plan_draws_the_job_and_says_what_spark_refuses(
    terminal: Terminal, text: str, code: str, line: int
) -> None:
    Path("job.yaml").write_text(text)
    assert terminal.run("plan", "job.yaml").code == 3
    assert "reads t" in terminal.out
    assert f"job.yaml:{line} {code}" in terminal.err
    assert terminal.json("plan", "job.yaml")["problems"][0]["line"] == line
    assert terminal.run("plan", "job.yaml", "--engine", "simulated").code == 0
    assert terminal.err == ""


@pytest.mark.parametrize(("text", "code", "line"), REFUSED)
def test_run_refuses_before_it_starts_a_broker_or_spark(
    terminal: Terminal, text: str, code: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        pytest.fail("something was started")

    monkeypatch.setattr("trilithon.cli.run_command.running", never)
    Path("job.yaml").write_text(text)
    assert terminal.run("run", "job.yaml").code == 3
    assert f"job.yaml:{line} {code}" in terminal.err


def test_a_refusal_of_a_job_in_python_has_the_line_of_its_definition(terminal: Terminal) -> None:
    Path("job.py").write_text(PYTHON)
    assert terminal.run("validate", "job.py").code == 3
    assert "job.py:9 TOO_MANY_TASKS" in terminal.out


def test_one_instance_is_not_one_instances(terminal: Terminal) -> None:
    Path("job.yaml").write_text(WIDE.replace("max: 5000", "max: 4"))
    assert "needs   1 instance at the start" in terminal.run("plan", "job.yaml").out


def test_plan_says_when_a_job_needs_more_than_the_defaults_give(terminal: Terminal) -> None:
    Path("job.yaml").write_text(
        WIDE.replace("initial: 1, min: 1, max: 5000", "initial: 40, min: 1, max: 100")
    )
    assert terminal.run("plan", "job.yaml").code == 0
    assert "--master 'local[81]'" in terminal.out
    assert "--slots 32" in terminal.out


def test_plan_says_what_a_job_holds_and_to_what_it_may_grow(terminal: Terminal) -> None:
    Path("job.yaml").write_text(WIDE.replace("max: 5000", "max: 16"))
    out = terminal.run("plan", "job.yaml").out
    assert "holds   5 Spark tasks at the start, up to 17: 1 + 4–16 (readers + operators)" in out
    assert "'last' holds 4 tasks at the start and may grow to 16: up to 4 instances while" in out
    plan = terminal.json("plan", "job.yaml")
    assert (plan["tasks"], plan["max_tasks"]) == (5, 17)
    (node,) = (node for node in plan["nodes"] if node["name"] == "last")
    assert (node["tasks"], node["max_tasks"]) == (4, 16)
    # The simulated cluster holds all tasks from the start, and so does an operator that says so.
    assert terminal.json("plan", "job.yaml", "--engine", "simulated")["tasks"] == 17
    Path("job.yaml").write_text(WIDE.replace("max: 5000", "max: 16, tasks: all"))
    out = terminal.run("plan", "job.yaml").out
    assert "holds   17 Spark tasks while it runs: 1 + 16 (readers + operators)" in out
    assert "may grow" not in out


def test_plan_says_when_a_job_may_outgrow_the_default_master(terminal: Terminal) -> None:
    Path("job.yaml").write_text(WIDE.replace("max: 5000", "max: 100"))
    assert "to grow to 101 tasks, start Spark with --master 'local[101]'" in (
        terminal.run("plan", "job.yaml").out
    )


def test_plan_prints_the_parts_of_a_graph_on_spark(terminal: Terminal) -> None:
    Path("job.yaml").write_text(f"""\
name: diamond
{SOURCE}operators:
  - {{name: first, input: in, parallelism: {{max: 2}}}}
  - {{name: left, input: first, parallelism: {{max: 2}}}}
  - {{name: right, input: first, parallelism: {{max: 2}}}}
  - {{name: last, inputs: [left, right], parallelism: {{max: 2}}}}
{SINK}""")
    assert terminal.run("validate", "job.yaml").code == 0
    assert terminal.run("plan", "job.yaml").code == 0
    assert (
        "holds   17 Spark tasks while it runs: 3 + 4 + 4 + 6 (one query per part)" in terminal.out
    )
    assert "part    last: 6 tasks, 4 of them read" in terminal.out
    assert "links   the parts by 4 internal topics" in terminal.out
    assert terminal.run("plan", "job.yaml", "--output", "json").code == 0
    parts = json.loads(terminal.out)["parts"]
    assert parts[0] == {
        "operators": ["first"],
        "reads": [],
        "writes": ["first->left", "first->right"],
        "tasks": 3,
        "max_tasks": 3,
    }
    assert terminal.run("plan", "job.yaml", "--engine", "simulated").code == 0
    assert "holds   9 Spark tasks" in terminal.out
