"""How the workers of a standalone cluster are divided among applications: without Spark."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from trilithon.engines.spark import masters, standalone
from trilithon.engines.spark.cluster_shares import executor_settings, shortage
from trilithon.engines.spark.standalone import (
    ClusterRecord,
    ClusterStatus,
    ClusterUse,
    Room,
    StandaloneCluster,
    WorkerRecord,
    WorkerStatus,
)
from trilithon.errors import ClusterTooSmall


class Cluster(StandaloneCluster):
    """A cluster with workers of these cores and memories, and a use that a test sets."""

    def __init__(self, *sizes: tuple[int, int], use: ClusterUse | None = None) -> None:
        super().__init__(Path("nowhere"))
        self.sizes, self.used = sizes, use

    def status(self) -> ClusterStatus:
        workers = (WorkerStatus(n, n, *size, 0) for n, size in enumerate(self.sizes, 1))
        return ClusterStatus(self.folder, workers=tuple(workers))

    def use(self) -> ClusterUse | None:
        return self.used


def test_an_application_that_is_alone_takes_whole_workers() -> None:
    assert executor_settings(Cluster((8, 2048), (8, 2048)), 1, {}) == {
        "spark.executor.memory": "2048m"
    }
    assert executor_settings(Cluster(), 1, {}) == {}
    assert executor_settings(None, 4, {}) == {}


def test_several_get_an_executor_per_worker_with_an_equal_share() -> None:
    expected = {
        "spark.executor.memory": "1024m",
        "spark.executor.cores": "5",
        "spark.cores.max": "10",
    }
    # Of the smaller worker: an executor of the same size must fit on each.
    assert executor_settings(Cluster((16, 4096), (15, 3072)), 3, {}) == expected
    given = {"spark.executor.memory": "600m"}
    assert executor_settings(Cluster((16, 700), (16, 700)), 3, given) == {
        name: value for name, value in expected.items() if name not in given
    }


@pytest.mark.parametrize(
    ("given", "cores", "most"),
    [
        ({"spark.cores.max": "4"}, "2", "4"),
        ({"spark.cores.max": "1"}, "1", "1"),
        ({"spark.executor.cores": "20"}, "20", "40"),
        ({"spark.executor.cores": "4"}, "4", "8"),
    ],
)
def test_the_number_of_tasks_that_is_not_given_fits_the_one_that_is(
    given: dict[str, str], cores: str, most: str
) -> None:
    """An executor per worker, neither more nor none."""
    settings = given | executor_settings(Cluster((32, 4096), (32, 4096)), 4, given)
    assert settings == {
        "spark.executor.memory": "1024m",
        "spark.executor.cores": cores,
        "spark.cores.max": most,
    }


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((8, 1024), "A worker has 1024 MB for 3 applications, and each needs 512 MB"),
        ((2, 4096), "fewer tasks at once than there are applications: 3"),
    ],
)
def test_workers_that_are_too_small_are_refused_with_the_numbers(
    size: tuple[int, int], message: str
) -> None:
    with pytest.raises(ClusterTooSmall, match=message):
        executor_settings(Cluster(size), 3, {})


def test_an_application_without_executors_is_told_what_is_free_and_who_has_the_rest() -> None:
    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "4"}
    use = ClusterUse(
        {2: Room(1, 600), 1: Room(8, 100)},
        {"app-1": ("trilithon-ads", 8), "app-2": ("trilithon-shop", 0)},
    )
    why = shortage(Cluster((8, 1024), use=use), settings)
    assert why("app-2") == (
        "An executor needs 512m of memory and 4 tasks; free are 100 MB and 8 tasks on worker 1, "
        "600 MB and 1 tasks on worker 2. Other applications: 1."
    )
    # One that has been given cores has executors that are starting.
    assert why("app-1") == why("unknown") == ""
    assert shortage(Cluster((8, 1024)), settings)("app-2") == ""
    assert shortage(None, settings)("app-2") == ""


def test_a_cluster_without_room_is_not_waited_for_as_long_as_a_slow_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = MagicMock()
    spark.sparkContext.applicationId = "app-7"
    monkeypatch.setattr(masters, "executors", lambda _: 0)
    asked: list[str] = []

    def full(application: str) -> str:
        asked.append(application)
        return "Nothing is free."

    with pytest.raises(ClusterTooSmall, match=r"no executor within 0 s\. Nothing is free"):
        masters.await_executors(spark, 2, timeout_s=60, enough_s=0, shortage=full)
    assert asked == ["app-7"]


def test_what_a_master_says_is_read_by_the_numbers_of_the_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = StandaloneCluster(tmp_path)
    record = ClusterRecord(1, 2, 3, (WorkerRecord(5, 9, 8081, 8, 1024),))
    answer: dict[str, Any] = {
        "workers": [
            worker(8081, "ALIVE", 3, 512),
            worker(8082, "DEAD", 8, 1024),
            worker(8083, "ALIVE", 8, 1024),
        ],
        "activeapps": [{"id": "app-1", "name": "trilithon-ads", "cores": 5}],
    }
    monkeypatch.setattr(cluster, "_running", lambda: record)
    monkeypatch.setattr(standalone, "_master_state", lambda _: answer)
    assert cluster.use() == ClusterUse({5: Room(3, 512)}, {"app-1": ("trilithon-ads", 5)})
    monkeypatch.setattr(standalone, "_master_state", lambda _: None)
    assert cluster.use() is None


def worker(port: int, state: str, cores: int, memory_mb: int) -> dict[str, Any]:
    address = f"http://127.0.0.1:{port}"
    return {
        "webuiaddress": address,
        "state": state,
        "coresfree": cores,
        "memoryfree": memory_mb,
        "coresused": 0,
    }
