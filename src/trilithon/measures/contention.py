"""Projects what instances could take on other machines: those that share cores wait for them.

u        CPU time of an instance / window: the cores that it uses
q        u · stretch, at most 1: the share of time that it computes or waits for a core
stretch  max(1, (1 + Σ q of the others on its machine) / cores): an instance that wants to
         compute finds so many there (the arrival theorem of mean value analysis)
rate     1 / (service time + CPU time per record · (stretch there − stretch as measured))
"""

from typing import Final

import numpy as np

from trilithon.measures.group import ratio, sum_by_node
from trilithon.model.columns import Floats, Ints
from trilithon.model.series import Window

# Each turn brings the shares nearer to what they are made of.
_TURNS: Final = 30


def could_take_when_placed(window: Window, machine: Ints, load: Floats | None = None) -> Floats:
    """Records per second that each node could take with its instances on these machines (rows);
    infinite for a node of which an instance is not measured, or took nothing. `load` is what each
    node takes then, as a share of what it took: one that takes less leaves more to the others.
    """
    instances = window.instances
    use = np.nan_to_num(instances.cpu_s) / window.span_s
    cores = np.nan_to_num(window.machines.cores, nan=np.inf)
    now = np.nan_to_num(instances.machine).astype(np.int64)
    then = use if load is None else use * load[window.layout.instance_node]
    more = _stretch(then, machine, cores) - _stretch(use, now, cores)
    cpu_s = np.nan_to_num(ratio(instances.cpu_s, instances.taken))
    measured_s = ratio(instances.busy_s, instances.taken)
    service_s = np.fmax(measured_s + cpu_s * more, cpu_s)
    rate = sum_by_node(window.layout, ratio(np.ones(len(service_s)), service_s))
    return np.where(np.isnan(rate), np.inf, rate)


def _stretch(use: Floats, machine: Ints, cores: Floats) -> Floats:
    """How much longer each instance computes than it would alone."""
    stretch = np.ones(len(use))
    for _ in range(_TURNS):
        share = np.minimum(use * stretch, 1.0)
        others = np.bincount(machine, share, len(cores))[machine] - share
        stretch = np.maximum(1.0, (1 + others) / cores[machine])
    return stretch
