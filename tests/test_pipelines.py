"""A job in Python: the same model as from a file, and errors at the line that caused them."""

import runpy
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from trilithon import pipelines as tp
from trilithon.errors import InvalidJob
from trilithon.model.job import Grouping, Job
from trilithon.spec.job_file import parse_job

TEMPLATES = resources.files("trilithon.cli") / "templates"


def test_the_two_examples_are_the_same_job(tmp_path: Path) -> None:
    written = tmp_path / "job.py"
    written.write_text((TEMPLATES / "job.py.txt").read_text())
    assert runpy.run_path(str(written))["job"] == parse_job((TEMPLATES / "job.yaml").read_text())


@pytest.fixture(autouse=True)
def _alone() -> object:
    with tp.definitions():
        yield


def chain() -> None:
    @tp.source(subscribe="in")
    def words() -> str:
        return "word STRING, at TIMESTAMP"

    @tp.operator
    def upper(words: tp.Rows) -> tp.Rows:
        return words.select("upper(word) AS word", "at")

    @tp.operator(parallelism=3, by_key={"upper": ["word"]}, profile={"service_ms": 5})
    def count(upper: tp.Rows) -> tp.Rows:
        return (
            upper.watermark("at", "10 seconds")
            .group_by("word")
            .window("at", "1 minute", "10 seconds")
            .aggregate(n="count(*)")
        )

    @tp.sink(topic="out")
    def counted(count: tp.Rows) -> None: ...


def test_bare_and_with_keywords() -> None:
    chain()
    job = tp.job(
        "words",
        slo=[tp.latency(p99_9="1 second"), tp.throughput(at_least=100)],
        constraints=[tp.constraint("upper", "count", at_most="50 ms")],
    )
    assert isinstance(job, Job)
    assert [operator.name for operator in job.operators] == ["upper", "count"]
    assert job.parents["count"][0].grouping is Grouping.BY_KEY
    assert job.operator("count").parallelism.initial == 3
    assert job.operator("count").profile is not None
    assert job.intent.thresholds[0].statistic == "p99.9"


def test_a_problem_points_at_the_line_of_python_it_comes_from() -> None:
    chain()

    @tp.operator
    def wrong(upper: tp.Rows) -> tp.Rows:
        return upper.select("word").where("nosuch(word)")  # the line

    with pytest.raises(InvalidJob) as caught:
        tp.job("words")
    first = next(p for p in caught.value.problems if p.code == "FUNCTION_NOT_ALLOWED")
    assert first.file == __file__
    assert first.line is not None
    assert "# the line" in Path(__file__).read_text().splitlines()[first.line - 1]


def test_a_problem_of_the_job_itself_points_at_the_call_that_makes_it() -> None:
    chain()
    with pytest.raises(InvalidJob) as caught:
        tp.job("words", priority=-1)  # the call
    (problem,) = caught.value.problems
    assert problem.path == "intent.priority"
    assert "# the call" in Path(__file__).read_text().splitlines()[(problem.line or 0) - 1]


def test_a_step_that_is_there_twice_is_refused_at_once() -> None:
    with pytest.raises(InvalidJob, match="two `where` steps"):

        @tp.operator
        def twice(words: tp.Rows) -> tp.Rows:
            return words.where("a").where("b")


def test_a_job_takes_what_was_defined_and_leaves_nothing_behind() -> None:
    chain()
    tp.job("one")
    with pytest.raises(InvalidJob) as caught:
        tp.job("two")
    assert {p.code for p in caught.value.problems} >= {"NO_SOURCE", "NO_SINK"}


def test_a_function_must_return_its_rows() -> None:
    with pytest.raises(InvalidJob, match="must return its rows"):

        @tp.operator
        def forgetful(words: tp.Rows) -> str:
            return "oops"


def test_a_latency_has_one_statistic() -> None:
    with pytest.raises(InvalidJob, match="one statistic"):
        tp.latency(p95="1 s", p99="2 s")


def test_what_a_user_of_spark_would_try_gets_an_answer() -> None:
    def refused(make: Callable[[], object], said: str) -> None:
        with pytest.raises(InvalidJob) as caught:
            make()
        (problem,) = caught.value.problems
        assert said in f"{problem.message} {problem.hint}"
        assert problem.file == __file__

    def mine(words: tp.Rows) -> tp.Rows:
        return words

    refused(lambda: tp.source(mine), 'tp.source(subscribe="topic")')
    refused(lambda: tp.sink(mine), 'tp.sink(topic="topic")')
    refused(lambda: tp.operator(by_key={"other": ["word"]})(mine), "words")
    refused(lambda: tp.operator(broadcast=["other"])(mine), "words")
    refused(lambda: tp.operator(lambda words: words.groupBy("a")), "group_by")
    refused(lambda: tp.operator(lambda *words: words), "not a plain input")
    refused(lambda: tp.operator(lambda words, n=3: (words, n)), "not a plain input")
    refused(lambda: tp.operator(2), "not a function")  # type: ignore[call-overload]


def test_an_operator_that_was_refused_can_be_written_again() -> None:
    chain()
    with pytest.raises(InvalidJob):
        tp.operator(lambda words: words.nothing)
    assert tp.job("words", slo=tp.latency(mean="1 s")).intent.thresholds[0].value == 1000
