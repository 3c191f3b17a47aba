"""Chooses the loads and the slots of the diurnal runs on Spark by a rule, before any run.

The rule: in the busiest hour of its trace the slowest operator of each job that waits needs four
instances; the job that computes keeps the load of the demo, since cores are no slots. There are so
many slots that in the busiest hour of all the jobs together need 1.2 times as many: then somebody
must do without, and it matters who. An operator needs as many instances as are busy: records per
second times the time that its expressions declare, `wait(ms)` or `work(ms)`; at least one, and at
most as many as it has tasks.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from trilithon.experiments.tenants import MAX_PARALLELISM, TENANTS, TenantJob, slots
from trilithon.model.job import Job, Operator
from trilithon.workloads import trace
from trilithon.workloads.records import Records
from trilithon.workloads.shapes import Trace

NEED_AT_PEAK: Final = 1.2
BUSY_AT_PEAK: Final = 4.0
_DECLARED: Final = re.compile(r"\b(?:wait|work)\((\d+(?:\.\d+)?)\)")
_SAMPLE: Final = 200


def service_ms(operator: Operator) -> float:
    """The time that the expressions of an operator declare for a record; 0 without one."""
    texts = [*(operator.work.select or ()), operator.work.where or ""]
    return sum(float(ms) for text in texts for ms in _DECLARED.findall(text))


def words_per_record() -> float:
    """The rows that `wordcount` makes of a record: the parts of its URL."""
    values = [value for _, value in Records(50, 0.0).make(0, _SAMPLE, 0.0)]
    urls = [re.search(rb'"url":"([^"]*)"', value) for value in values]
    parts = [re.split(rb"[^A-Za-z0-9]+", url.group(1)) for url in urls if url is not None]
    return sum(map(len, parts)) / len(parts)


def busy_s(job: Job) -> dict[str, float]:
    """The time that each operator of a line of them works on one record of the source."""
    times, records = {}, 1.0
    for operator in job.operators:
        times[operator.name] = records * service_ms(operator) / 1000
        if operator.work.explode:
            records *= words_per_record()
    return times


def needed(job: Job, rate_per_s: float) -> float:
    """The instances that are busy at a rate, over all operators."""
    return sum(
        min(float(MAX_PARALLELISM), max(1.0, rate_per_s * seconds))
        for seconds in busy_s(job).values()
    )


def trace_of(index: int) -> str:
    """Neighbours have different traces."""
    names = trace.names()
    return names[index % len(names)]


def peak_need(rates: Mapping[str, float], tenants: Sequence[TenantJob] = TENANTS) -> float:
    """What all jobs together need in the busiest hour of the traces."""
    shapes = [
        Trace(rates[tenant.file], trace.load(trace_of(i)), 1.0) for i, tenant in enumerate(tenants)
    ]
    jobs = [tenant.job for tenant in tenants]
    hours = max(len(shape.values) for shape in shapes)
    return max(
        sum(needed(job, shape.rate_per_s(hour)) for job, shape in zip(jobs, shapes, strict=True))
        for hour in range(hours)
    )


def mean_rates(tenants: Sequence[TenantJob] = TENANTS) -> dict[str, float]:
    """The mean load of each job over its trace, by the job's file."""
    rates = {}
    for i, tenant in enumerate(tenants):
        peak = Trace(1.0, trace.load(trace_of(i)), 1.0).peak_per_s
        slowest_s = max(busy_s(tenant.job).values())
        most = BUSY_AT_PEAK / slowest_s / peak
        rates[tenant.file] = tenant.per_s if tenant.computes else round(most, 1)
    return rates


def scarce_slots(tenants: Sequence[TenantJob] = TENANTS) -> int:
    """The slots that there are: fewer than the jobs need in the busiest hour, and at least those
    that they begin with.
    """
    return max(slots(tenants), int(peak_need(mean_rates(tenants), tenants) / NEED_AT_PEAK))
