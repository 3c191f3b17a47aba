"""What a constraint is measured against before a job starts; pure, without Spark."""

from dataclasses import replace

import pytest

from tests.engines.spark import diamond as graphs
from tests.engines.spark.test_flush_time import job
from tests.policies.latency.model import limit
from trilithon.cli.engine_name import EngineName
from trilithon.cli.plan_command import notes, plan
from trilithon.engines.spark.constraint_floor import (
    CUT_MS,
    FLUSH_SHARE,
    HOP_MS,
    ConstraintFloor,
    constraint_floors,
)
from trilithon.engines.spark.cuts import cut_into_parts
from trilithon.engines.spark.stall import mean_pause_ms
from trilithon.model.job import Job

DIAMOND = graphs.diamond("bounded")


def diamond(*path: str, at_most_ms: float = 50.0) -> Job:
    constrained = replace(DIAMOND.intent, constraints=(limit(at_most_ms, *path),))
    return replace(DIAMOND, intent=constrained)


def floor(job: Job) -> ConstraintFloor:
    (only,) = constraint_floors(job)
    return only


def test_inside_a_query_it_is_work_and_shuffles() -> None:
    least = floor(job(50.0, service_ms=2.0, path=("a", "a->b", "b")))
    assert (least.shuffles, least.cuts, least.pauses_ms) == (1, 0, 0)
    assert least.total_ms == pytest.approx(4.0 + HOP_MS + FLUSH_SHARE * 5)


def test_a_tight_promise_shortens_the_flush_time_that_counts() -> None:
    assert floor(job(10.0, path=("a", "a->b", "b"))).flush_ms == 5
    assert floor(job(6.0, path=("a", "a->b", "b"))).flush_ms == 3


def test_only_records_in_internal_topics_pay_for_pauses_between_batches() -> None:
    """Between batches the reader of a source sends nothing, and its edge begins with the reader:
    short batches were said to break promises that they do not touch.
    """
    assert floor(replace(job(50.0), batch_s=5.0)).pauses_ms == 0
    spec = diamond("split->left", "left")
    (behind,) = [part for part in cut_into_parts(spec).parts if part.name == "left"]
    assert floor(spec).pauses_ms == pytest.approx(mean_pause_ms(behind.tasks, spec.batch_s))
    assert floor(replace(spec, batch_s=10 * spec.batch_s)).pauses_ms < floor(spec).pauses_ms
    assert floor(diamond("in->split", "split")).pauses_ms == 0


def test_an_edge_to_a_sink_has_no_shuffle() -> None:
    assert floor(job(50.0, path=("a", "a->b", "b", "b->out"))).shuffles == 1


def test_cuts_cost_their_way_through_kafka_and_the_pauses_behind_them() -> None:
    least = floor(diamond("split", "split->left", "left", "left->merge", "merge"))
    assert (least.shuffles, least.cuts) == (2, 2)
    assert least.cuts_ms == 2 * CUT_MS
    assert least.pauses_ms > 0


def test_plan_flags_a_constraint_below_its_floor_part_by_part() -> None:
    assert not any("cannot be kept" in note for note in notes(job(50.0, service_ms=2.0)))
    (sentence,) = [n for n in notes(job(5.0, service_ms=2.0)) if "cannot be kept" in n]
    assert sentence.startswith("5 ms cannot be kept on in->a, a, a->b, b: declared work 4.0 ms, ")
    assert "2 × shuffle" in sentence
    (cut,) = [
        n for n in notes(diamond("split->left", at_most_ms=2.0)) if n.startswith("2 ms cannot")
    ]
    assert "1 × internal topic" in cut
    assert "pauses between batches" in cut


@pytest.mark.parametrize("engine", EngineName)
def test_plan_says_that_no_edge_into_a_sink_is_measured(engine: EngineName) -> None:
    def unmeasured(*path: str) -> list[str]:
        return [n for n in notes(job(50.0, path=path), engine) if "not measured" in n]

    assert unmeasured("in->a", "a", "a->b", "b") == []
    (sentence,) = unmeasured("a", "a->b", "b", "b->out")
    assert "a, b, b->out" in sentence
    assert "Let it end with 'b'" in sentence


def test_plan_has_the_parts_as_data_on_spark() -> None:
    (parts,) = plan(job(5.0, service_ms=2.0))["intent"]["floors"]
    assert parts["promise_ms"] == 5.0
    assert parts["least_ms"] == pytest.approx(
        sum(parts[f"{part}_ms"] for part in ("work", "shuffles", "cuts", "pauses")), abs=0.03
    )
    assert plan(job(5.0), EngineName.SIMULATED)["intent"]["floors"] == []
