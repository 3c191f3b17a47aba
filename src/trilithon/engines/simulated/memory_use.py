"""Owns how much memory the jobs of a simulated cluster use: state,
records in queues and in windows.
"""

from collections.abc import Iterable

import numpy as np

from trilithon.engines.simulated.operator_cost import Assumed
from trilithon.engines.simulated.simulated_job import SimulatedJob
from trilithon.engines.simulated.world_tables import Floats, World
from trilithon.model.job import Operator


def memory_used(
    world: World, jobs: Iterable[SimulatedJob], records: Floats, assumed: Assumed
) -> Floats:
    """Bytes in use on each machine.

    An instance of an operator with state holds its part of that of all keys; each holds the records
    that wait for it, and, if its operator has a window, the records that came in as long a time.
    """
    used = np.zeros(len(world.machines))
    actors, nodes = world.actors, world.nodes
    # Most tasks are idle and hold nothing.
    holding = np.flatnonzero(records)
    np.add.at(used, actors["machine"][holding], records[holding] * assumed.record_bytes)
    for job in jobs:
        for operator in job.job.operators:
            window = operator.work.window
            has_state = operator.work.stateful or _declares_state(operator)
            if window is None and not has_state:
                continue
            node = job.rows.nodes[operator.name]
            cost = job.rows.costs[operator.name]
            count = int(nodes["active"][node])
            first = int(nodes["first"][node])
            mine = slice(first, first + count)
            each = np.zeros(count)
            if has_state:
                each += cost.state_bytes_per_key * assumed.keys / max(1, count)
            if window is not None:
                gaps, spans = actors["gaps"][mine], actors["gap_s"][mine]
                rate = np.divide(gaps, spans, out=np.zeros(count), where=spans > 0)
                each += rate * window.duration_s * assumed.record_bytes
            np.add.at(used, actors["machine"][mine], each)
    return used


def _declares_state(operator: Operator) -> bool:
    """Whether a profile gives an operator state, whatever its expressions do."""
    return operator.profile is not None and operator.profile.state_bytes_per_key is not None
