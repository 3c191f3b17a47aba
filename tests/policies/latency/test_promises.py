"""Promises: a row each, as the policy would decide if it were the job's only constraint."""

import pytest

from tests.policies.latency.model import Operating, QueueCluster, limit, line, scaling
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


def rows(cluster: QueueCluster) -> dict[float, dict[str, object]]:
    window = cluster.series.window()
    assert window is not None
    (status,) = cluster.statuses.values()
    (job,) = cluster.jobs.values()
    sequence = job.intent.constraints[0].sequence
    table = promise_table(
        GlobalSummary.of(window), status, sequence, PROMISES_MS, cluster.parameters
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


def test_beside_a_bottleneck_the_model_says_nothing() -> None:
    cluster = stage(rate=500.0)
    cluster.rounds(1)
    for row in rows(cluster).values():
        assert row["outcome"] == OUTCOMES[Technique.RESOLVE_BOTTLENECKS]
        assert row["predicted_mean_ms"] is None
