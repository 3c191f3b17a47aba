"""Paths between two parts of a job, as `FROM..TO`."""

import pytest

from trilithon.errors import InvalidIntent
from trilithon.model.intent import EdgeName
from trilithon.model.job import Edge, Job, Operator, Sink, Source
from trilithon.model.paths import path_between

JOB = Job(
    tenant="t",
    name="diamond",
    sources=(Source("in", (), ()),),
    operators=tuple(Operator(name) for name in ("a", "b", "c", "d")),
    edges=(
        Edge("in", "a"),
        Edge("a", "b"),
        Edge("a", "c"),
        Edge("b", "d"),
        Edge("c", "d"),
        Edge("d", "out"),
    ),
    sinks=(Sink("out", ()),),
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a..b", ["a", "a->b", "b"]),
        ("in..b", ["in->a", "a", "a->b", "b"]),
        ("in -> a .. b", ["in->a", "a", "a->b", "b"]),
        ("a->c..d", ["a->c", "c", "c->d", "d"]),
        ("a->c..d->out", ["a->c", "c", "c->d", "d", "d->out"]),
        ("b..out", ["b", "b->d", "d", "d->out"]),
        ("a->b..b->d", ["a->b", "b", "b->d"]),
        ("a..a", ["a"]),
        ("a->b..a->b", ["a->b"]),
    ],
)
def test_a_path_has_the_operators_and_edges_on_the_way(text: str, parts: list[str]) -> None:
    path = path_between(JOB, text)
    assert [str(part) for part in path] == parts
    assert all(isinstance(part, EdgeName) == ("->" in str(part)) for part in path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", "is not a path"),
        ("..a", "is not a path"),
        ("b..a", "No path leads from b to a"),
        ("in..in", "No path leads"),
        ("a..x", "has no 'x'"),
        ("a->d..d", "has no edge a->d"),
    ],
)
def test_what_is_no_path_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidIntent, match=words):
        path_between(JOB, text)


def test_of_several_paths_none_is_chosen_and_all_are_named() -> None:
    with pytest.raises(InvalidIntent, match="Several paths lead from a to d") as error:
        path_between(JOB, "a..d")
    assert "a → b → d; a → c → d" in error.value.hint
