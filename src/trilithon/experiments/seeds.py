"""Tells whether a run depends on a seed, and runs it with several.

When records come is drawn, record by record or step by step; loads may have random bursts. Such
runs are made with `SEEDS`. Only with arrivals in a steady beat is one run enough.
"""

import zlib
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from trilithon.engines.simulated.engine import SimulationMode
from trilithon.scenarios.scenario import Scenario, ScheduledJob
from trilithon.workloads.shapes import Shape

SEEDS: Final = (1, 2, 3, 4, 5)


def is_random(scenario: Scenario) -> bool:
    """Whether another seed can give another run."""
    loads = (shape for scheduled in scenario.jobs for shape in scheduled.loads.values())
    by_record = scenario.way is SimulationMode.EVENTS
    return by_record or scenario.arrival_cv2 > 0 or any(map(_draws, loads))


def with_seed(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with this seed; each source has bursts of its own."""

    def seeded(scheduled: ScheduledJob) -> ScheduledJob:
        loads = {
            source: _seeded(shape, f"{seed}/{scheduled.job.id}/{source}")
            for source, shape in scheduled.loads.items()
        }
        return replace(scheduled, loads=loads)

    return replace(scenario, seed=seed, jobs=tuple(map(seeded, scenario.jobs)))


def _draws(shape: Shape) -> bool:
    """Whether a shape, or one that it is made of, draws its rates from a seed."""
    parts = _parts(shape)
    return "seed" in parts or any(_draws(part) for part in parts.values() if _is_shape(part))


def _seeded(shape: Shape, whose: str) -> Shape:
    parts = _parts(shape)
    changed: dict[str, Any] = {
        name: _seeded(part, f"{whose}/{name}") for name, part in parts.items() if _is_shape(part)
    }
    if "seed" in parts:
        changed["seed"] = zlib.crc32(whose.encode())
    return replace(shape, **changed) if changed else shape  # type: ignore[type-var]


def _parts(shape: Shape) -> dict[str, Any]:
    if not is_dataclass(shape):
        return {}
    return {field.name: getattr(shape, field.name) for field in fields(shape) if field.init}


def _is_shape(part: object) -> bool:
    return isinstance(part, Shape)
