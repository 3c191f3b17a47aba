"""Owns the screen of `top`: the order of jobs, which one is selected, and what keys do.

Keys only change this state and say what to ask of the daemon; asking and drawing happen outside.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from trilithon.cli import live
from trilithon.cli.job_graph import draw_graph
from trilithon.cli.output import Listing, number, table
from trilithon.model.job import Job
from trilithon.service.job_order import by_lost_utility

Figures = Mapping[str, Any]
HELP: Final = "↑ ↓ select · s sort · g graph · w why · p pause or resume · Esc back · q quit"


def _by(key: str) -> Callable[[Figures], tuple[float, str]]:
    """The largest first; what is not known comes last."""

    def order(job: Figures) -> tuple[float, str]:
        value = job.get(key)
        return (1.0 if value is None else -float(value), job["job"])

    return order


ORDERS: Final[Mapping[str, Callable[[Figures], Any]]] = {
    "lost utility": lambda job: by_lost_utility(
        job["job"], job["health"], job["lost_utility"], job["max_utility"]
    ),
    "name": lambda job: job["job"],
    "p95": _by("p95_ms"),
    "lag": _by("lag"),
    "slots": lambda job: (-live.slots(job), job["job"]),
}


@dataclass
class TopScreen:
    """What is on the screen. `view` is `jobs`, `graph` or `why`."""

    # Without keys nothing is selected, and operators are below the jobs.
    has_keys: bool = True
    jobs: Sequence[Figures] = ()
    selected: str | None = None
    order: str = "lost utility"
    view: str = "jobs"
    message: str = ""
    # Waits for `y`: pause or resume of this job.
    asks: tuple[str, str] | None = None
    ended: bool = False
    decisions: Sequence[Mapping[str, Any]] = field(default_factory=list)
    explanations: Sequence[Mapping[str, Any]] = field(default_factory=list)
    graph: Job | None = None

    def take(self, jobs: Sequence[Figures], decisions: Sequence[Mapping[str, Any]]) -> None:
        self.jobs = sorted(jobs, key=ORDERS[self.order])
        self.decisions = decisions
        names = [job["job"] for job in self.jobs]
        if self.has_keys and self.selected not in names:
            self.selected = names[0] if names else None

    def press(self, key: str) -> tuple[str, str] | None:
        """What a key does. A pair of a command and a job is for the daemon: `pause`, `resume`."""
        if self.asks is not None:
            command, self.asks = self.asks, None
            self.message = "" if key == "y" else "Nothing was changed."
            return command if key == "y" else None
        self.message = ""
        if key == "q":
            self.ended = True
        elif key in {"up", "k"}:
            self._move(-1)
        elif key in {"down", "j"}:
            self._move(1)
        elif key == "s":
            names = list(ORDERS)
            self.order = names[(names.index(self.order) + 1) % len(names)]
            self.take(self.jobs, self.decisions)
        elif key in {"g", "w"}:
            wanted = "graph" if key == "g" else "why"
            self.view = "jobs" if self.view == wanted else wanted
        elif key == "escape":
            self.view = "jobs"
        elif key == "p":
            self._ask()
        return None

    def _move(self, by: int) -> None:
        names = [job["job"] for job in self.jobs]
        if self.selected in names:
            place = names.index(self.selected) + by
            self.selected = names[max(0, min(len(names) - 1, place))]

    def _ask(self) -> None:
        job = self.selected_job
        if job is None:
            return
        stopped = job["health"] in {"paused", "pausing", "failed"}
        self.asks = ("resume" if stopped else "pause", job["job"])

    @property
    def selected_job(self) -> Figures | None:
        return next((job for job in self.jobs if job["job"] == self.selected), None)

    def draw(self, headline: RenderableType) -> RenderableType:
        if not self.has_keys:
            lines = map(_decision, self.decisions)
            return Group(headline, Text(), live.draw(self.jobs), Text(), *lines)
        if self.view == "graph" and self.graph is not None and self.selected_job is not None:
            graph = _graph(self.graph, self.selected_job)
            body: RenderableType = Group(graph, *self._constraints())
        elif self.view == "why":
            body = _why(self.selected, self.explanations)
        else:
            body = Group(
                self._table(), *self._constraints(), Text(), *map(_decision, self.decisions)
            )
        return Group(headline, Text(), body, Text(), self._footer())

    def _table(self) -> RenderableType:
        columns = ("", "job", "state", "intent", "lost", *live.JOB_COLUMNS, "slots")
        rows = [
            (
                Text("▸" if job["job"] == self.selected else " ", "bold"),
                Text(job["job"], "bold" if job["job"] == self.selected else ""),
                live.state_text(job["health"]),
                live.intent_text(job),
                job["lost_utility"],
                *(job.get(key) for key in live.JOB_COLUMNS.values()),
                live.slots(job),
            )
            for job in self.jobs
        ]
        notes = map(live.problem_notes, self.jobs)
        return Listing(columns, rows, notes, ("of", "p50 ms", "out/s", "juice", "lag", "utility"))

    def _constraints(self) -> list[RenderableType]:
        """The constraints of the selected job, a line each."""
        job = self.selected_job
        lines = [] if job is None else list(map(live.constraint_line, job["constraints"]))
        return [Text(), *lines] if lines else []

    def _footer(self) -> Text:
        if self.asks is not None:
            command, job = self.asks
            return Text(f"{command.capitalize()} {job}? y for yes, any other key for no", "bold")
        sorted_by = f"sorted by {self.order}   "
        return Text.assemble((self.message or sorted_by, "bold"), (HELP, "dim"))


def _decision(decision: Mapping[str, Any]) -> Text:
    who = (decision["job"] or "cluster", "bold")
    return Text.assemble((decision["time"][11:], "dim"), "  ", who, "  ", decision["sentences"][0])


def _why(job: str | None, explanations: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The latest decisions about a job, the newest first, with all their sentences."""
    lines: list[RenderableType] = [Text(f"Why: {job}", "bold"), Text()]
    for entry in reversed(explanations):
        first, *rest = entry["sentences"]
        lines += [Text.assemble((entry["time"], "dim"), "  ", first)]
        lines += [Text(f"    {sentence}") for sentence in rest]
    if not explanations:
        lines.append(Text("No decision about it yet.", "dim"))
    return Group(*lines)


def _graph(job: Job, figures: Figures) -> RenderableType:
    """The graph of a job, with the numbers of each operator beside it."""
    operators = {operator["operator"]: operator for operator in figures["operators"]}
    rows = []
    for rails, name in draw_graph(job):
        numbers = operators.get(name or "")
        rows.append((Text(rails, "cyan"), Text(name or "", "bold"), *_numbers(numbers)))
    columns = ("", job.id, "p", "done/s", "busy", "queue", "held back")
    return table(None, columns, rows)


def _numbers(operator: Mapping[str, Any] | None) -> tuple[Any, ...]:
    if operator is None:
        return ("",) * 5
    held, busy = operator["held_back"], operator["capacity"]
    done = operator["processed_per_s"]
    colour = "red" if operator["congested"] else ""
    return (
        Text(f"×{operator['parallelism']}"),
        Text("n/a" if done is None else number(done)),
        Text("n/a" if busy is None else f"{busy:.0%}", colour),
        Text("n/a" if operator["queue"] is None else number(operator["queue"])),
        Text("n/a" if held is None else f"{held:.0%}"),
    )
