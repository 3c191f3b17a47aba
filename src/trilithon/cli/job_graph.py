"""Draws a job's graph in the terminal: one line per node, rails for the edges."""

from dataclasses import dataclass, field

from trilithon.model.job import Job, NodeKind

SIGNS = {NodeKind.SOURCE: "○", NodeKind.OPERATOR: "●", NodeKind.SINK: "◎"}


def draw_graph(job: Job) -> list[tuple[str, str | None]]:
    """The lines of the drawing, each with its node; None for lines between nodes."""
    rails = _Rails()
    lines: list[tuple[str, str | None]] = []
    kinds = dict(job.nodes())
    straight = False
    for name in depth_first(job):
        lane, merge = rails.arrive(name)
        if merge and straight:
            lines.pop()
        if merge:
            lines.append((merge, None))
        lines.append((rails.node(lane, SIGNS[kinds[name]]), name))
        fork = rails.leave(lane, [edge.target for edge in job.children[name]])
        straight = not fork
        lines.append((fork or rails.between(), None))
    lines = [(line, name) for line, name in lines if line]
    width = max((len(line) for line, _ in lines), default=0)
    return [(line.ljust(width), name) for line, name in lines]


def depth_first(job: Job) -> list[str]:
    """An order in which edges point down and a chain stays together."""
    waiting = {name: len(job.parents[name]) for name, _ in job.nodes()}
    stack = [source.name for source in reversed(job.sources)]
    order: list[str] = []
    while stack:
        name = stack.pop()
        order.append(name)
        ready = []
        for edge in job.children[name]:
            waiting[edge.target] -= 1
            if waiting[edge.target] == 0:
                ready.append(edge.target)
        stack += reversed(ready)
    return order


@dataclass
class _Rails:
    """Lanes from left to right; each is free or leads to a node further down."""

    lanes: list[str | None] = field(default_factory=list)

    def arrive(self, name: str) -> tuple[int, str]:
        """The lane of a node, and the line that joins the others that lead to it, if any do."""
        mine = [i for i, target in enumerate(self.lanes) if target == name]
        if not mine:
            return self._free(0), ""
        line = self._across(mine[0], mine[1:], "┘", "┴") if len(mine) > 1 else ""
        for lane in mine[1:]:
            self.lanes[lane] = None
        return mine[0], line

    def node(self, lane: int, sign: str) -> str:
        row = ["│" if target else " " for target in self.lanes]
        row[lane] = sign
        return " ".join(row).rstrip()

    def between(self) -> str:
        return " ".join("│" if target else " " for target in self.lanes).rstrip()

    def leave(self, lane: int, targets: list[str]) -> str:
        """Puts the edges out of a node on lanes; the line on which they part, if they do."""
        self.lanes[lane] = targets[0] if targets else None
        new = []
        for target in targets[1:]:
            free = self._free(lane + 1)
            self.lanes[free] = target
            new.append(free)
        return self._across(lane, new, "┐", "┬") if new else ""

    def _free(self, start: int) -> int:
        for lane in range(start, len(self.lanes)):
            if self.lanes[lane] is None:
                return lane
        while len(self.lanes) <= start:
            self.lanes.append(None)
        if self.lanes[-1] is not None:
            self.lanes.append(None)
        return len(self.lanes) - 1

    def _across(self, lane: int, others: list[int], last: str, middle: str) -> str:
        row = []
        for i in range(max(others) + 1):
            if i == lane:
                sign = "├"
            elif i in others:
                sign = last if i == max(others) else middle
            elif i > lane:
                sign = "┼" if self.lanes[i] else "─"
            else:
                sign = "│" if self.lanes[i] else " "
            row.append(sign)
        joined = "".join(
            sign + ("─" if lane <= i < max(others) else " ") for i, sign in enumerate(row)
        )
        tail = [" │" if target else "  " for target in self.lanes[max(others) + 1 :]]
        return (joined.rstrip() + "".join(tail)).rstrip()
