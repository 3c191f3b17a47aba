"""Runs flows in steps: the interface of `fluid.py` to the engine, and the logs of its sources."""

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
from scipy import special

from trilithon.engines.simulated import compiled, fluid
from trilithon.engines.simulated.arrivals import POISSON_CV2
from trilithon.engines.simulated.service import LEAST
from trilithon.engines.simulated.world_tables import BROADCAST, OPERATOR, SOURCE, Floats, World

# Steps that a source's log remembers; a record that is older counts as that old.
REMEMBERED: Final = 1 << 14
# Probabilities between which the latencies of a step are put into buckets: finer towards the tail.
_CUTS: Final = np.concatenate(
    [np.arange(0, 0.9, 0.05), np.arange(0.9, 0.99, 0.01), np.arange(0.99, 1.0001, 0.002)]
)


@cache
def latency_table() -> tuple[Floats, Floats]:
    """Quantiles of gamma distributions of mean 1, a row per variation 0, 0.05, 0.1 … 4, and the
    weight of each column. Sums of waiting and service times are close to a gamma distribution.
    """
    middle = (_CUTS[1:] + _CUTS[:-1]) / 2
    weights = np.diff(_CUTS)
    shape = 1 / np.maximum(1e-3, np.arange(0, 4.001, 0.05))[:, None] ** 2
    table = special.gammaincinv(shape, middle) / shape
    return table / (table * weights).sum(axis=1, keepdims=True), weights


class FluidRun:
    """Advances a world in steps. With a seed, how many records come in each step is drawn;
    without one nothing is: the same load gives the same run.
    """

    def __init__(
        self, world: World, seed: int | None = None, *, arrival_cv2: float = POISSON_CV2
    ) -> None:
        compiled.use_cache()
        self.rng = np.random.Generator(np.random.PCG64(0 if seed is None else seed))
        self.arrival_cv2 = arrival_cv2
        self.drawn = seed is not None and arrival_cv2 > 0
        self.now_s = 0.0
        self.log = np.zeros((0, REMEMBERED))
        self.changed(world)

    def changed(self, world: World) -> None:
        """Rows were appended."""
        self.world = world
        sources = world.nodes["kind"] == SOURCE
        world.nodes["log"][sources] = np.arange(sources.sum())
        world.nodes["arrival_cv2"] = self.arrival_cv2
        more = int(sources.sum()) - len(self.log)
        self.log = np.concatenate([self.log, np.zeros((more, REMEMBERED))])

    def advance(self, until_s: float, rates: Floats) -> None:
        """One step up to a moment, with so many records per second coming to each source."""
        if until_s > self.now_s:
            self.advance_steps([until_s], rates[None, :])

    def advance_steps(self, ends_s: Sequence[float], rates: Floats) -> None:
        """Steps up to these moments, with a row of `rates` each. Nothing changes in between."""
        spans_s = np.diff(np.array([self.now_s, *ends_s]))
        arrivals = rates * spans_s[:, None]
        if self.drawn:
            # In the order of the steps, as if each were drawn by itself.
            fluid.draw_arrivals(self.rng, arrivals.reshape(-1), self.arrival_cv2)
        fluid.steps(self.world, spans_s, arrivals, self.log, *latency_table(), self.drawn)
        self.now_s = ends_s[-1]

    def records_held(self) -> Floats:
        """Records queued at, in transit to and in work at each actor; logs do not count."""
        actors: Floats = self.world.actors["level"] + self.world.actors["busy"]
        return actors

    def in_system(self, job: int) -> int:
        of_job = self.world.nodes["job"][self.world.actors["node"]] == job
        return int(np.floor(self.world.actors["held"][of_job].sum()))

    def refresh(self) -> None:
        """Cores, speeds or foreign load of machines changed: the next step looks by itself."""

    def wake(self, job: int) -> None:
        """A job goes on: the next step looks by itself."""

    def move(self, actor: int, machine: int) -> None:
        self.world.actors["machine"][actor] = machine

    def redistribute(self, job: int) -> None:
        """What waits for the instances of a job's operators is dealt among them by what each gets
        now. What moves counts as taken where it was and as sent where it goes.
        """
        world = self.world
        nodes, actors, edges = world.nodes, world.actors, world.edges
        moves = (nodes["job"] == job) & (nodes["kind"] == OPERATOR) & (nodes["pulled"] == 0)
        for number in np.flatnonzero(moves):
            node = nodes[number]
            mine = slice(int(node["first"]), int(node["first"] + node["tasks"]))
            into = world.into[node["in_first"] : node["in_first"] + node["in_count"]]
            part = np.zeros(int(node["tasks"]))
            for edge in into:
                start = int(edges["share"][edge])
                # Before anything flowed, each edge counts the same.
                part += (edges["flow"][edge] + LEAST) * world.share[start : start + len(part)]
            part /= part.sum()
            before = actors["held"][mine].copy()
            total = before.sum()
            if total <= LEAST or (edges["grouping"][into] == BROADCAST).any():
                continue
            after = total * part
            actors["taken"][mine] += np.maximum(0.0, before - after)
            actors["sent"][mine] += np.maximum(0.0, after - before)
            actors["spent_s"][mine] = float((before * actors["spent_s"][mine]).sum() / total)
            actors["rate"][mine] = actors["rate"][mine].sum() * part
            actors["held"][mine] = after
            actors["level"][mine] = actors["level"][mine].sum() * part

    def drop_queued(self, job: int) -> None:
        """Drops the queued records of a job. They count as taken, and are never processed."""
        world = self.world
        nodes = world.nodes
        moves = (nodes["job"] == job) & (nodes["kind"] == OPERATOR) & (nodes["pulled"] == 0)
        if not moves.any():
            return
        # The tasks of a job stand side by side.
        first, end = nodes["first"][moves], (nodes["first"] + nodes["tasks"])[moves]
        actors = world.actors[first.min() : end.max()]
        of = actors["node"]
        mine = moves[of]
        waiting = np.where(mine, np.maximum(0.0, actors["held"] - actors["busy"]), 0.0)
        actors["taken"] += waiting
        actors["held"] -= waiting
        by_node = np.bincount(of, weights=waiting, minlength=len(nodes))
        world.edges["lost"] += by_node[world.edges["target"]] * world.edges["own"]
        for name in ("level", "spent_s"):
            actors[name][mine] = 0.0

    def clear(self, job: int) -> None:
        """Drops the records that a job has read and not finished; its logs stay."""
        of_job = self.world.nodes["job"][self.world.actors["node"]] == job
        for name in ("held", "busy", "level"):
            self.world.actors[name][of_job] = 0.0

    def replay(self, source: int, count: int, span_s: float) -> None:
        """Puts records of the last seconds back into a log, to be read again."""
        nodes = self.world.nodes
        nodes["arrived"][source] += count
        target = self.world.edges["target"][nodes["out_first"][source]]
        if nodes["pulled"][target]:
            nodes["held"][target] += count
        else:
            nodes["backlog"][source] += count
            nodes["age_s"][source] += span_s / 2
