"""Checks a job, and who looks at its records, against what the administrator allows its tenant:
topics, and functions that burn time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from trilithon.errors import Problem, TopicNotAllowed
from trilithon.model.job import Job, Operator
from trilithon.service.settings import ServiceSettings, TenantSettings
from trilithon.spec.functions import BURNING
from trilithon.spec.sql_expressions import parse_expression

# Topics of the engine's own, which carry edges of jobs.
RESERVED: Final = "trilithon."
CODES: Final = {
    "FUNCTION_NOT_ALLOWED": "`work` or `wait` where the administrator does not allow them",
    "NAME_MISMATCH": "a spec whose tenant or name is not that of the address it is sent to",
    "PYTHON_NOT_ALLOWED": "a Python file outside of the folders that the administrator named",
    "TENANT_UNKNOWN": "a tenant that the administrator has not listed",
    "TOPIC_NOT_ALLOWED": "a topic that the tenant may not read or write",
    "TOPIC_RESERVED": "a topic with the name of the engine's own topics",
}


def tenant_problems(
    job: Job, settings: ServiceSettings, *, owner_only: bool = False
) -> Iterator[Problem]:
    """Everything that the job's tenant is not allowed to do. `owner_only`: nobody but the owner of
    the state folder can submit jobs.
    """
    yield from _reserved(job)
    if settings.tenants is not None:
        yield from _unlisted(job, settings.tenants)
        if job.tenant not in settings.tenants:
            return
    if not settings.workload_functions_of(job.tenant, owner_only=owner_only):
        yield from _functions(job)


def _unlisted(job: Job, tenants: Mapping[str, TenantSettings]) -> Iterator[Problem]:
    """A tenant that is not listed, or topics that are not the tenant's."""
    if (tenant := tenants.get(job.tenant)) is None:
        message = f"The tenant {job.tenant!r} is not listed."
        hint = "Ask the administrator to add it to the service's settings."
        yield Problem("TENANT_UNKNOWN", "tenant", message, hint)
        return
    for path, topic, writes in _topics(job):
        allowed = tenant.write_topics if writes else tenant.read_topics
        if not topic.startswith(allowed):
            verb = "write" if writes else "read"
            message = f"The tenant {job.tenant!r} may not {verb} the topic {topic!r}."
            hint = f"Use one that begins with: {', '.join(allowed) or '(none is allowed)'}."
            yield Problem("TOPIC_NOT_ALLOWED", path, message, hint)


def check_readable(job: Job, topics: Sequence[str], settings: ServiceSettings) -> None:
    """Refuses to show records of a topic that the job's tenant may not read. A job also writes
    to topics, and others may write there, too. Internal topics carry records of this job only.
    """
    if settings.tenants is None:
        return
    tenant = settings.tenants.get(job.tenant)
    allowed = () if tenant is None else tenant.read_topics
    named = {topic for _, topic, _ in _topics(job)}
    for topic in topics:
        if topic in named and not topic.startswith(allowed):
            raise TopicNotAllowed(
                f"The tenant {job.tenant!r} may not read the topic {topic!r}.",
                "Ask the administrator to add it to the tenant's `read_topics`.",
            )


def _topics(job: Job) -> Iterator[tuple[str, str, bool]]:
    """Every topic that a job names, its path in the file, and whether it is written."""
    for i, source in enumerate(job.sources):
        for topic in source.topics:
            yield f"sources[{i}].options.subscribe", topic, False
    for i, sink in enumerate(job.sinks):
        yield f"sinks[{i}].options.topic", sink.topic, True
    if job.dead_letter_topic is not None:
        yield "dead_letter_topic", job.dead_letter_topic, True


def _reserved(job: Job) -> Iterator[Problem]:
    for path, topic, _ in _topics(job):
        if topic.startswith((RESERVED, "__")):
            message = f"The topic {topic!r} has the name of an internal topic."
            yield Problem("TOPIC_RESERVED", path, message, "Use a topic of your own.")


def _functions(job: Job) -> Iterator[Problem]:
    hint = (
        "Leave them out, or ask the administrator to allow them: `workload_functions` in the "
        "service file."
    )
    for i, operator in enumerate(job.operators):
        for text in _expressions(operator):
            if called := sorted(BURNING & set(parse_expression(text).calls)):
                message = f"{operator.name!r} calls {' and '.join(called)}, which only burn time."
                yield Problem("FUNCTION_NOT_ALLOWED", f"operators[{i}]", message, hint)
                break
    for i, sink in enumerate(job.sinks):
        if sink.key is not None and BURNING & set(parse_expression(sink.key).calls):
            message = f"The key of {sink.name!r} calls work or wait, which only burn time."
            yield Problem("FUNCTION_NOT_ALLOWED", f"sinks[{i}].key", message, hint)


def _expressions(operator: Operator) -> Iterator[str]:
    work = operator.work
    if work.where is not None:
        yield work.where
    yield from (text for _, text in work.explode)
    yield from work.select
    yield from work.deduplicate
    yield from work.group_by
    yield from (text for _, text in work.aggregate)
