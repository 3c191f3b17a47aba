"""Finds the topic behind an edge or a node of a job, and reads a few records of it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trilithon.errors import NotFound, NotObservable
from trilithon.model.job import Job

DEAD_LETTERS = "dead_letters"
# The internal topics that carry edges of a job, by the edge.
EdgeTopics = Callable[[str], Mapping[str, str]]
# By topic, number of records, and the tenant whose principal reads.
ReadLatest = Callable[[str, int, str], list[dict[str, Any]]]
# By job, edge and number of records.
ReadEdge = Callable[[str, str, int], list[dict[str, Any]]]


def topics_of(job: Job) -> dict[str, list[str]]:
    """The topics of a job by the names of its sources and sinks; dead letters beside them."""
    topics = {source.name: list(source.topics) for source in job.sources}
    topics |= {sink.name: [sink.topic] for sink in job.sinks}
    if job.dead_letter_topic is not None:
        topics[DEAD_LETTERS] = [job.dead_letter_topic]
    return topics


def topics_at(
    job: Job, place: str, edge_topics: Callable[[], Mapping[str, str]] = dict
) -> list[str]:
    """The topics of a node, or of an edge that is written `from->to`; empty for an edge that no
    topic carries. `edge_topics` asks the engine which edges between two operators have one.
    """
    known = topics_of(job)
    if place in known:
        return known[place]
    source, arrow, target = place.partition("->")
    if not arrow:
        if place in {operator.name for operator in job.operators}:
            raise NotObservable(
                "Records can be seen between operators, not inside one.",
                f"Name an edge: {', '.join(e for e in _edges(job) if place in e.split('->'))}.",
            )
        raise NotFound(f"The job has no {place!r}.", f"There are: {', '.join(known)}.")
    if not any((edge.source, edge.target) == (source, target) for edge in job.edges):
        raise NotFound(f"The job has no edge {place!r}.", f"There are: {', '.join(_edges(job))}.")
    for end in (source, target):
        if end in known:
            return known[end]
    topic = edge_topics().get(place)
    return [] if topic is None else [topic]


def _edges(job: Job) -> Iterator[str]:
    return (f"{edge.source}->{edge.target}" for edge in job.edges)
