"""Loads the papers' jobs that ship with the package.

A topology (`topologies/NAME-topology.yaml`) has the operators, edges and parallelism of the paper
and no work: it runs on the simulated cluster. A Spark job (`jobs/NAME.yaml`) also does the work.
"""

from functools import cache
from importlib import resources
from typing import Final

from trilithon.model.job import Job
from trilithon.spec.job_file import parse_job

TOPOLOGIES: Final = resources.files("trilithon.workloads") / "topologies"
SPARK_JOBS: Final = resources.files("trilithon.workloads") / "jobs"
_SUFFIX: Final = "-topology.yaml"


@cache
def topology_names() -> tuple[str, ...]:
    files = (entry.name for entry in TOPOLOGIES.iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX)))


@cache
def load_topology(name: str) -> Job:
    return parse_job((TOPOLOGIES / f"{name}{_SUFFIX}").read_bytes())


def spark_job_text(name: str) -> str:
    """The job file as it is written, for those that change something in it."""
    return (SPARK_JOBS / f"{name}.yaml").read_text(encoding="utf-8")
