"""What Henge remembers: small, bounded, and enough to come back; and what its page says of it."""

import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.henge.memory import Configuration, Memory
from trilithon.policies.henge.messages import REASONS

PAGE = Path(__file__).resolve().parents[3] / "docs/concepts/henge.md"

goals = st.floats(0, 1)
moves = st.tuples(st.sampled_from("abc"), st.integers(1, 4))


def _rank(configuration: Configuration) -> tuple[float, float]:
    """By what each was worth; the same jobs count in all of them."""
    return configuration.goal, configuration.at_s


def _best(memory: Memory) -> Configuration | None:
    return max(memory.history, key=_rank, default=None)


@given(st.lists(moves | goals, max_size=40), st.integers(1, 6))
def test_the_best_configuration_can_always_be_come_back_to(
    steps: list[tuple[str, int] | float], most: int
) -> None:
    """Compared with a memory that keeps every configuration whole."""
    memory, now = Memory(), {"a": 1, "b": 1, "c": 1}
    whole: dict[float, tuple[float, dict[str, int]]] = {}
    for at, step in enumerate(steps):
        if isinstance(step, tuple):
            job, count = step
            memory.note_parallelism(job, {"op": now[job]}, {"op": count})
            now = {**now, job: count}
        else:
            memory.record_configuration(Configuration(step, float(at)), most, _rank)
            # The same configuration measured again: the latest number counts.
            others = {t: entry for t, entry in whole.items() if entry[1] != now}
            whole = others | {float(at): (step, now)}
        assert len(memory.history) <= most
    if (best := _best(memory)) is not None:
        goal, wanted = whole[best.at_s]
        assert goal == best.goal
        assert now | {job: counts["op"] for job, counts in best.back.items()} == wanted


@given(st.lists(goals, min_size=1, max_size=30))
def test_what_was_worth_the_most_is_never_pushed_out_by_what_was_worth_less(
    measured: list[float],
) -> None:
    memory = Memory()
    for at, goal in enumerate(measured):
        memory.note_parallelism("a", {"op": at + 1}, {"op": at + 2})
        memory.record_configuration(Configuration(goal, float(at)), 2, _rank)
    best = _best(memory)
    assert best is not None
    assert best.goal == max(measured)


def test_what_is_remembered_first_is_nothing_and_is_json() -> None:
    data = Memory.of({}).as_json()
    assert json.loads(json.dumps(data)) == data
    assert Memory.of(data) == Memory()


def _rows(heading: str) -> list[list[str]]:
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index(f"| {heading} |") :].split("\n\n")[0]
    cells = [re.split(r" *\| *", line.strip("| ")) for line in table.splitlines()[2:]]
    return [[row[0].strip("`"), *row[1:]] for row in cells]


def test_the_page_names_every_parameter_as_it_is() -> None:
    shown = {name: (default, unit, text) for name, default, unit, text in _rows("parameter")}
    assert shown == {
        parameter.name: (
            parameter.default if isinstance(parameter.default, str) else f"{parameter.default:g}",
            parameter.unit,
            parameter.meaning,
        )
        for parameter in HengeParameters.describe()
    }


def test_the_page_names_every_reason_as_it_is() -> None:
    assert dict(_rows("reason")) == REASONS
