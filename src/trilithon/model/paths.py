"""Finds the sequence of operators and edges between two parts of a job: `parse..score`."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from trilithon.errors import InvalidIntent
from trilithon.model.intent import EdgeName
from trilithon.model.job import Job, NodeKind

JobPath = tuple[str | EdgeName, ...]
_SEPARATOR: Final = ".."
# A graph may have more paths than anybody wants to read.
_MOST_PATHS: Final = 5


def path_between(job: Job, text: str) -> JobPath:
    """The sequence of operators and edges that `FROM..TO` names. Each end is a node, or an edge
    `a->b`. A source or sink at an end stands for its edge: neither takes time of its own. Raises
    `InvalidIntent` if there is no such path, or more than one.
    """
    first, separator, last = (part.strip() for part in text.partition(_SEPARATOR))
    if not separator or not first or not last:
        raise InvalidIntent(
            f"{text!r} is not a path.", "Write FROM..TO, as in parse..score or in->parse..score."
        )
    start, end = _part(job, first), _part(job, last)
    paths = list(islice(_paths(job, start, end), _MOST_PATHS))
    if not paths:
        raise InvalidIntent(
            f"No path leads from {first} to {last} in {job.id}.",
            f"In the order of the graph, it has: {', '.join(job.order)}.",
        )
    if len(paths) > 1:
        ways = "; ".join(
            " → ".join(part for part in path if isinstance(part, str)) for path in paths
        )
        raise InvalidIntent(
            f"Several paths lead from {first} to {last} in {job.id}.",
            f"Begin or end with an edge that only one of them has. They lead over: {ways}.",
        )
    return paths[0]


def _part(job: Job, name: str) -> str | EdgeName:
    source, arrow, target = (end.strip() for end in name.partition("->"))
    if arrow:
        edge = EdgeName(source, target)
        if edge in {each.name for each in job.edges}:
            return edge
        raise InvalidIntent(
            f"{job.id} has no edge {edge}.",
            f"It has: {', '.join(str(each.name) for each in job.edges)}.",
        )
    if name in dict(job.nodes()):
        return name
    raise InvalidIntent(f"{job.id} has no {name!r}.", f"It has: {', '.join(job.order)}.")


def _paths(job: Job, start: str | EdgeName, end: str | EdgeName) -> Iterator[JobPath]:
    """All paths that begin and end with these parts."""
    kinds = dict(job.nodes())
    if start == end:
        if isinstance(start, EdgeName) or kinds[start] is NodeKind.OPERATOR:
            yield (start,)
        return
    # An edge at an end belongs to the path, and the node beyond it does not.
    prefix: JobPath = (start,) if isinstance(start, EdgeName) else ()
    suffix: JobPath = (end,) if isinstance(end, EdgeName) else ()
    node = start.target if isinstance(start, EdgeName) else start
    goal = end.source if isinstance(end, EdgeName) else end
    for walk in _walks(job, node, goal):
        middle = tuple(
            part for part in walk if isinstance(part, EdgeName) or kinds[part] is NodeKind.OPERATOR
        )
        yield (*prefix, *middle, *suffix)


def _walks(job: Job, node: str, goal: str) -> Iterator[JobPath]:
    """All walks from a node to another, with the edges between them."""
    if node == goal:
        yield (node,)
        return
    for edge in job.children.get(node, ()):
        for rest in _walks(job, edge.target, goal):
            yield (node, edge.name, *rest)
