"""Promises: a row each, as the policy would decide if it were the job's only constraint."""

import pytest

from tests.policies.latency.model import Operating, QueueCluster, limit, line, scaling
from trilithon.policies.latency.latency_parameters import LatencyParameters
from trilithon.policies.latency.promises import OUTCOMES, promise_table
from trilithon.policies.latency.scaling import Technique
from trilithon.policies.latency.sequence import GlobalSummary

PATH = ("in->a", "a", "a->b", "b")
PROMISES_MS = (10.0, 12.0, 20.0, 50.0, 100.0)


def stage(rate: float = 300.0, limit_ms: float = 50.0, most: int = 20) -> QueueCluster:
    job = line("a", "b", constraints=(limit(limit_ms, *PATH),), most=most)
    return QueueCluster.of(
        (job, {"a": Operating(rate), "b": Operating(rate, service_s=0.001)}), obey=False
    )


def rows(cluster: QueueCluster, *, adaptive: bool = False) -> dict[float, dict[str, object]]:
    window = cluster.series.window()
    assert window is not None
    (status,) = cluster.statuses.values()
    (job,) = cluster.jobs.values()
    sequence = job.intent.constraints[0].sequence
    table = promise_table(
        GlobalSummary.of(window),
        status,
        sequence,
        PROMISES_MS,
        cluster.parameters,
        adaptive=adaptive,
    )
    assert table is not None
    data = table.to_json()
    assert data["sequence"] == list(PATH)
    return {row["promise_ms"]: row for row in data["promises"]}


def test_a_shorter_promise_needs_more_instances() -> None:
    cluster = stage()
    cluster.rounds(1)
    found = rows(cluster)
    assert [row["outcome"] for row in found.values()] == [
        OUTCOMES[Technique.OUT_OF_REACH],
        OUTCOMES[Technique.INFEASIBLE],
        *[OUTCOMES[Technique.REBALANCE]] * 3,
    ]
    totals = [found[ms]["total"] for ms in (12.0, 20.0, 50.0, 100.0)]
    assert totals == sorted(totals, reverse=True)  # type: ignore[type-var]
    assert totals[0] == 40
    for missing in ("instances", "total", "waiting_limit_ms", "predicted_mean_ms"):
        assert found[10.0][missing] is None
    busiest = [found[ms]["busiest_utilisation"] for ms in (12.0, 20.0, 50.0, 100.0)]
    assert busiest == sorted(busiest)  # type: ignore[type-var]


@pytest.mark.parametrize("promise_ms", [20.0, 50.0, 100.0])
def test_a_row_is_what_the_policy_decides(promise_ms: float) -> None:
    cluster = stage(limit_ms=promise_ms)
    decisions = scaling(cluster.rounds(1))
    now = cluster.parallelism()
    wanted = {**now, **decisions[0].changes[0].parallelism} if decisions else now  # type: ignore[union-attr]
    assert rows(cluster)[promise_ms]["instances"] == wanted


def test_on_an_engine_with_live_batching_a_row_has_the_paper_s_share_for_waiting() -> None:
    cluster = stage()
    cluster.parameters = LatencyParameters()
    cluster.rounds(1)
    alone, adaptive = rows(cluster), rows(cluster, adaptive=True)
    for ms in (50.0, 100.0):
        limits = [table[ms]["waiting_limit_ms"] for table in (alone, adaptive)]
        assert limits[1] < limits[0]  # type: ignore[operator]


def test_beside_a_bottleneck_the_model_says_nothing() -> None:
    cluster = stage(rate=500.0)
    cluster.rounds(1)
    for row in rows(cluster).values():
        assert row["outcome"] == OUTCOMES[Technique.RESOLVE_BOTTLENECKS]
        assert row["predicted_mean_ms"] is None
