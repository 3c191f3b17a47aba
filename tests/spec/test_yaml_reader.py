"""The reader: strict, bounded, and exact about where something is wrong."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu_cost import costs_at_most
from trilithon.errors import FileUnreadable, InvalidJob, TrilithonError
from trilithon.spec.job_file import parse_job
from trilithon.spec.yaml_reader import MAX_BYTES, read_yaml, read_yaml_file


def refused(text: str | bytes) -> tuple[str, int | None]:
    with pytest.raises(InvalidJob) as caught:
        read_yaml(text)
    (problem,) = caught.value.problems
    return problem.code, problem.line


def test_plain_data_comes_out_as_it_was_written() -> None:
    document = read_yaml("a: 1\nb: [x, 2.5, true, null, ~, '7', \"no\", yes]\nc:\n  d: -3e2\n")
    assert document.data == {
        "a": 1,
        "b": ["x", 2.5, True, None, None, "7", "no", "yes"],
        "c": {"d": -300.0},
    }
    assert document.lines.find("b[3]") == 2
    assert document.lines.find("c.d") == 4
    assert document.lines.find("c.nothing") == 3


def test_a_key_with_dots_is_found_too() -> None:
    document = read_yaml("options:\n  kafka.linger.ms: 5\n  kafka: {linger: 1}\n")
    assert document.lines.find("options.kafka.linger.ms") == 2
    assert document.lines.find("options.kafka.linger") == 3


def test_thirty_two_levels_are_read_and_thirty_three_are_not() -> None:
    assert read_yaml("a: " + "[" * 31 + "]" * 31).data
    assert refused("a: " + "[" * 32 + "]" * 32) == ("TOO_DEEP", 1)


BAD: list[tuple[str, str | bytes, int]] = [
    ("DUPLICATE_KEY", "a: 1\nb: 2\na: 3\n", 3),
    ("DUPLICATE_KEY", "x:\n  - {k: 1, k: 2}\n", 2),
    ("ANCHOR", "a: &x 1\n", 1),
    ("ANCHOR", "a: 1\nb: *x\n", 2),
    ("ANCHOR", "a:\n  <<: {b: 1}\n", 2),
    ("TAG", "a: !!python/object:os.system 1\n", 1),
    ("TAG", "a: 1\nb: !mine 2\n", 2),
    ("TOO_DEEP", "a: " + "[" * 40 + "]" * 40, 1),
    ("SEVERAL_DOCUMENTS", "a: 1\n---\nb: 2\n", 2),
    ("NOT_YAML", "a: [1\n", 2),
    ("NOT_YAML", "a: 'b\n", 2),
    ("NOT_YAML", b"a: \xff\n", 1),
    ("NOT_YAML", "a: \x00\n", 1),
    ("NOT_YAML", 'a: 1\nb: "\\e]0;x"\n', 2),
    ("NOT_YAML", "a: 1\nb:\t@x\n", 2),
    ("NOT_A_JOB", "", 1),
    ("NOT_A_JOB", "- a\n- b\n", 1),
    ("NOT_A_JOB", "just text", 1),
    ("BAD_KEY", "? [a, b]\n: 1\n", 1),
    ("FILE_TOO_LARGE", "#" * (MAX_BYTES + 1), 1),
]


@pytest.mark.parametrize(("code", "text", "line"), BAD, ids=[code for code, _, _ in BAD])
def test_what_is_refused_has_a_code_and_a_line(code: str, text: str | bytes, line: int) -> None:
    assert refused(text) == (code, line)


HOSTILE = {
    "deep flow": "a: " + "[" * 200_000,
    "deep mappings": "a: " + "{a: " * 60_000,
    "deep blocks": "".join(" " * i + "a:\n" for i in range(500)),
    "many values": "a:\n" + "- 1\n" * 60_000,
    "many keys": "".join(f"k{i}: 1\n" for i in range(25_000)),
    "billion laughs": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "too large": "x" * (MAX_BYTES * 4),
    "duplicates at the end": "".join(f"k{i}: 1\n" for i in range(9_000)) + "k1: 2\n",
    "long keys": "".join(f"{' ' * i}{'k' * 1000}:\n" for i in range(31)) + " " * 31 + "[1]\n",
    "long paths": "".join(f"{' ' * i}{'k' * 250}:\n" for i in range(30))
    + " " * 30
    + "["
    + "1," * 9000
    + "]",
    "unknown fields": "name: x\n" + "".join(f"k{i}: 1\n" for i in range(4_900)),
    "unknown fields within": "operators:\n" + "- {naem: a, inptu: b}\n" * 1_900,
    "long digits": "a: " + "9" * 250_000,
    "complex keys": "? " * 100_000,
    "dashes": "- " * 120_000,
    "unclosed quote": "a: '" + "x" * 250_000,
    "colons": "a: " + ": " * 120_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_at_once_and_costs_no_memory(name: str) -> None:
    """Within 100 ms on an idle machine (`python -m bench.reader` prints it), which is about six
    loops. The memory is that of the text and its data, not a multiple of it.
    """

    def refuse() -> None:
        with pytest.raises(InvalidJob):
            parse_job(HOSTILE[name])

    assert costs_at_most(10, refuse)
    tracemalloc.start()
    refuse()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * 2**20


def test_a_file_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match="No such file"):
        read_yaml_file(tmp_path / "nothing.yaml")
    with pytest.raises(FileUnreadable, match="directory"):
        read_yaml_file(tmp_path)


def test_no_more_of_a_file_is_read_than_a_job_may_have(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(10 * 2**30)  # ten gigabytes of nothing
    with pytest.raises(InvalidJob) as caught:
        read_yaml_file(path)
    assert caught.value.problems[0].code == "FILE_TOO_LARGE"


@given(st.text(max_size=300) | st.binary(max_size=300))
def test_whatever_is_in_a_file_the_answer_is_a_job_or_an_error_of_ours(text: str | bytes) -> None:
    try:
        parse_job(text)
    except TrilithonError as error:
        assert error.code


yaml_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.data())
def test_a_job_with_any_field_replaced_by_anything_is_answered(data: st.DataObject) -> None:
    import json  # noqa: PLC0415 - JSON is YAML

    job: dict[str, Any] = {
        "name": "j",
        "sources": [{"name": "s", "options": {"subscribe": "t"}, "schema": "v INT"}],
        "operators": [{"name": "o", "input": "s", "select": ["v"], "parallelism": 2}],
        "sinks": [{"name": "k", "input": "o", "options": {"topic": "u"}}],
        "intent": {"slo": [{"metric": "juice", "at_least": 0.9}]},
    }
    where = data.draw(
        st.sampled_from(
            ["name", "sources", "operators", "sinks", "intent", "tables", "bounds", "trigger"]
        )
    )
    value = data.draw(yaml_like)
    section = job.get(where)
    if isinstance(section, list) and isinstance(section[0], dict) and data.draw(st.booleans()):
        section[0][data.draw(st.sampled_from([*section[0], "where", "join", "profile"]))] = value
    else:
        job[where] = value
    try:
        parse_job(json.dumps(job))
    except InvalidJob as error:
        assert all(problem.line for problem in error.problems)
