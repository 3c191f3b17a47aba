"""Places the nodes of a job's graph for drawing: sources left, sinks right, few crossings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trilithon.model.job import Edge, Job, NodeKind

NODE_WIDTH: Final = 174
NODE_HEIGHT: Final = 146
# Sources and sinks have fewer numbers.
END_HEIGHT: Final = 62
GAP_X: Final = 46
GAP_Y: Final = 22
MARGIN: Final = 8
_SWEEPS: Final = 4


@dataclass(frozen=True, slots=True)
class PlacedNode:
    name: str
    kind: NodeKind
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class PlacedEdge:
    """An edge as the path of a curve, and where a label stands."""

    edge: Edge
    path: str
    label_x: float
    label_y: float


@dataclass(frozen=True, slots=True)
class PlacedGraph:
    width: float
    height: float
    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]


def place(job: Job) -> PlacedGraph:
    """Columns by the longest way from a source; sinks stand right of what they write."""
    kinds = dict(job.nodes())
    columns = _columns(job)
    tallest = max((_height(kinds, names) for names in columns), default=0.0)
    placed: dict[str, PlacedNode] = {}
    for i, names in enumerate(columns):
        y = MARGIN + (tallest - _height(kinds, names)) / 2
        for name in names:
            height = _node_height(kinds[name])
            x = MARGIN + i * (NODE_WIDTH + GAP_X)
            placed[name] = PlacedNode(name, kinds[name], x, y, NODE_WIDTH, height)
            y += height + GAP_Y
    edges = [_edge(edge, placed) for edge in job.edges if {edge.source, edge.target} <= set(placed)]
    width = 2 * MARGIN + len(columns) * (NODE_WIDTH + GAP_X) - GAP_X
    order = [placed[name] for name in job.order if name in placed]
    return PlacedGraph(width, 2 * MARGIN + tallest, tuple(order), tuple(edges))


def _columns(job: Job) -> list[list[str]]:
    rank: dict[str, int] = {}
    for name in job.order:
        rank[name] = max((rank[edge.source] + 1 for edge in job.parents[name]), default=0)
    columns: list[list[str]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for name in job.order:
        columns[rank[name]].append(name)
    parents = {name: [e.source for e in job.parents[name]] for name in rank}
    children = {name: [e.target for e in job.children[name]] for name in rank}
    for _ in range(_SWEEPS):
        _sort(columns, parents)
        _sort(columns[::-1], children)
    return columns


def _sort(columns: list[list[str]], neighbours: Mapping[str, list[str]]) -> None:
    """Sorts each column by the mean place of its nodes' neighbours in the columns before it."""
    heights: dict[str, float] = {}
    for names in columns:
        wanted = _heights(names)
        for name in names:
            known = [heights[other] for other in neighbours[name] if other in heights]
            if known:
                wanted[name] = sum(known) / len(known)
        names.sort(key=wanted.__getitem__)
        heights |= _heights(names)


def _heights(names: list[str]) -> dict[str, float]:
    """The place of each node of a column, from 0 at the top to 1."""
    return {name: i / max(1, len(names) - 1) for i, name in enumerate(names)}


def _node_height(kind: NodeKind) -> float:
    return NODE_HEIGHT if kind is NodeKind.OPERATOR else END_HEIGHT


def _height(kinds: Mapping[str, NodeKind], names: list[str]) -> float:
    return sum(_node_height(kinds[name]) + GAP_Y for name in names) - GAP_Y


def _edge(edge: Edge, placed: Mapping[str, PlacedNode]) -> PlacedEdge:
    a, b = placed[edge.source], placed[edge.target]
    x1, y1 = a.x + a.width, a.y + a.height / 2
    # The arrow's head takes the last pixels.
    x2, y2 = b.x - 7, b.y + b.height / 2
    bend = max(GAP_X / 2, (x2 - x1) / 2)
    path = f"M{x1:g},{y1:g} C{x1 + bend:g},{y1:g} {x2 - bend:g},{y2:g} {x2:g},{y2:g}"
    return PlacedEdge(edge, path, x2, y2 - 6)
