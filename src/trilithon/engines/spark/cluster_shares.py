"""Divides the workers of a standalone cluster among applications, and says what is free on them.

Spark gives an application that says nothing else all cores of all workers, and its executors the
memory that it asks for. So the first of several would leave no room for the next: each gets an
equal share of every worker.
"""

from collections.abc import Callable, Mapping
from typing import Final

from trilithon.engines.spark.standalone import StandaloneCluster
from trilithon.errors import ClusterTooSmall

# Less, and an executor does not start: Spark keeps 300 MB of its heap for itself.
LEAST_MEMORY_MB: Final = 512
MEMORY: Final = "spark.executor.memory"
CORES: Final = "spark.executor.cores"
MOST_CORES: Final = "spark.cores.max"


def executor_settings(
    cluster: StandaloneCluster | None, applications: int, given: Mapping[str, str]
) -> dict[str, str]:
    """The settings by which an application gets one executor per worker with its share of it, and
    one that is alone whole workers. What is `given` is left to whoever gave it.
    """
    workers = () if cluster is None else cluster.status().workers
    if not workers:
        return {}
    worker_mb = min(worker.memory_mb for worker in workers)
    memory_mb = worker_mb // applications
    if MEMORY not in given and memory_mb < LEAST_MEMORY_MB:
        raise ClusterTooSmall(
            f"A worker has {worker_mb} MB for {applications} applications, and each needs "
            f"{LEAST_MEMORY_MB} MB.",
            f"Start workers with --memory {LEAST_MEMORY_MB * applications}, or divide them among "
            "fewer (`--applications`).",
        )
    settings = {MEMORY: f"{memory_mb}m"}
    if applications > 1:
        cores = min(worker.cores for worker in workers) // applications
        # What is given for one of the two is kept to by the other: else no executor would start.
        if CORES in given:
            cores = int(given[CORES])
        elif MOST_CORES in given:
            cores = max(1, min(cores, int(given[MOST_CORES]) // len(workers)))
        if not cores:
            raise ClusterTooSmall(
                f"A worker runs fewer tasks at once than there are applications: {applications}.",
                "Start workers with more --cores, or divide them among fewer (`--applications`).",
            )
        settings |= {CORES: str(cores), MOST_CORES: str(cores * len(workers))}
    return {name: value for name, value in settings.items() if name not in given}


def shortage(
    cluster: StandaloneCluster | None, settings: Mapping[str, str]
) -> Callable[[str], str]:
    """Says why the cluster starts no executor for an application of these settings, by its id: what
    is free, and among how many the rest is. Empty if it has started one, or nobody knows.
    """

    def why(application: str) -> str:
        use = None if cluster is None else cluster.use()
        if use is None or use.applications.get(application, ("", 1))[1]:
            return ""
        # Not their names: tenants read this, and those are of other tenants.
        others = sum(id_ != application for id_ in use.applications)
        free = (
            f"{room.memory_mb} MB and {room.cores} tasks on worker {number}"
            for number, room in sorted(use.workers.items())
        )
        return (
            f"An executor needs {settings.get(MEMORY, '1g')} of memory and "
            f"{settings.get(CORES, '1')} tasks; free are {', '.join(free) or 'no workers'}. "
            f"Other applications: {others}."
        )

    return why
