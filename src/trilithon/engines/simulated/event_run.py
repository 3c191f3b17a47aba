"""Runs single records: the interface of `events.py` to the engine, and room for its records."""

import numpy as np

from trilithon.engines.simulated import compiled, events, moving, sharing
from trilithon.engines.simulated.arrivals import POISSON_CV2
from trilithon.engines.simulated.world_tables import IDLE, SOURCE, Floats, World


class EventRun:
    """Advances a world record by record. The same seed gives the same run."""

    def __init__(self, world: World, seed: int, *, arrival_cv2: float = POISSON_CV2) -> None:
        compiled.use_cache()
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.arrival_cv2 = arrival_cv2
        self.world = world
        self.changed(world)

    @property
    def events(self) -> int:
        return int(self.world.single["events"][0])

    @property
    def now_s(self) -> float:
        return float(self.world.single["now_s"][0])

    def changed(self, world: World) -> None:
        """Rows were appended."""
        world.nodes["arrival_cv2"] = self.arrival_cv2
        world.machines["load_since_s"][len(self.world.machines) :] = self.now_s
        self.world = moving.prepared(world)
        self.margin = moving.margin(self.world)
        self.refresh()

    def advance(self, until_s: float, rates: Floats) -> None:
        """Up to a moment, with so many records per second coming to each source."""
        began_s = self.now_s
        machines = self.world.machines
        machines["load_s"] = 0.0
        events.set_rates(self.world, self.rng, rates)
        while True:
            status = events.advance(self.world, self.rng, until_s, self.margin)
            if status == events.DONE:
                break
            more = status == events.NEEDS_RECORDS
            grow = moving.with_more_records if more else moving.with_more_events
            self.world = grow(self.world)
        if until_s > began_s:
            others = machines["other"] + machines["overhead"]
            machines["load"] = machines["load_s"] / (until_s - began_s) + others

    def in_system(self, job: int) -> int:
        """Records of a job that were read and are not through."""
        records = self.records_held()
        return int(records[self.world.nodes["job"][self.world.actors["node"]] == job].sum())

    def records_held(self) -> Floats:
        """Records queued at, in transit to and in work at each actor; logs do not count."""
        actors, nodes = self.world.actors, self.world.nodes
        reader = nodes["kind"][actors["node"]] == SOURCE
        queued = np.where(reader, 0, actors["in_flight"])
        records: Floats = (queued + (actors["state"] != IDLE)).astype(float)
        return records

    def refresh(self) -> None:
        """Cores, speeds or foreign load of machines changed."""
        for machine in range(len(self.world.machines)):
            sharing.refresh_pace(self.world, machine)

    def wake(self, job: int) -> None:
        events.wake(self.world, job)

    def move(self, actor: int, machine: int) -> None:
        events.move(self.world, actor, machine)

    def redistribute(self, job: int) -> None:
        """Deals the queued records of a job to its instances by the routing of now."""
        events.redistribute(self.world, self.rng, job)

    def drop_queued(self, job: int) -> None:
        """Drops the queued records of a job; its logs stay, and what is in work."""
        events.drop_queued(self.world, job)

    def clear(self, job: int) -> None:
        """Drops the records that a job has read and not finished; its logs stay."""
        events.clear(self.world, job)

    def replay(self, source: int, count: int, span_s: float) -> None:
        """Puts records of the last seconds back into a log, to be read again."""
        left = count
        while left > 0:
            left -= events.replay(self.world, self.rng, source, left, span_s, self.margin)
            if left:
                self.world = moving.with_more_records(self.world)
