"""Views of jobs with given numbers, for tests of detectors, diagnosers and resolvers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.engines.simulated.worlds import graph, operator
from trilithon.engines.abilities import REAL_TIME
from trilithon.model.allocation import initial
from trilithon.model.capability import Capabilities
from trilithon.model.job import Parallelism
from trilithon.model.layout import Layout
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.health import JobCase
from trilithon.policies.dhalion.job_view import InstanceView, MeasuredJob, OperatorView
from trilithon.policies.scene import Cluster, JobStatus, Scene, Span


def instance_view(
    index: int = 0,
    *,
    rate: float | None = 100.0,
    queue: float | None = 0.0,
    parked_s: float | None = 0.0,
    service_s: float | None = 0.004,
    busy: float | None = 0.5,
    weight: float = 1.0,
    machine: str | None = "m0",
) -> InstanceView:
    even = None if rate is None else rate / weight
    return InstanceView(index, rate, even, queue, parked_s, service_s, busy, machine, weight)


def operator_view(
    name: str, instances: Sequence[InstanceView], held_back: float = 0.3, **more: Any
) -> OperatorView:
    view = OperatorView(
        name=name,
        instances=tuple(replace(view, index=i) for i, view in enumerate(instances)),
        held_back=held_back,
        holds_back=held_back > 0.05,
        rate_per_s=400.0,
        queue_growth_per_s=0.0,
        at_source=False,
        keyed=True,
        broadcast=False,
        stateful=False,
    )
    return replace(view, **more)


def case_of(
    view: OperatorView,
    *,
    parameters: DhalionParameters | None = None,
    most: int = 16,
    blacklist: frozenset[str] = frozenset(),
    emission: float | None = 1000.0,
    arriving: float | None = None,
    how: Any = REAL_TIME,
    tasks: int = 16,
    **more: Any,
) -> JobCase:
    """A job whose operator `count` has this view, on three machines. What arrives is read, if
    nothing else is said.
    """
    count = view.parallelism
    counting = replace(
        operator("count", count), parallelism=Parallelism(count, 1, max(count, tasks))
    )
    job = graph("words", [counting], "in=count", "count>out")
    allocation = initial(job)
    status = JobStatus(job.id, "t", allocation, 0.0, spans={"count": Span(1, most)})
    status = replace(status, **more)
    layout = Layout.build([job], machines=("m0", "m1", "m2"))
    scene = Scene(
        3,
        Series.of([Snapshot.empty(1000.0, layout, {job.id: job})]),
        {job.id: status},
        Cluster(Capabilities(how)),
    )
    arrives = emission if arriving is None else arriving
    shown = MeasuredJob(job, status, 300.0, (view,), emission, arrives, 0.0)
    return JobCase(shown, scene, parameters or DhalionParameters(), blacklist=blacklist)
