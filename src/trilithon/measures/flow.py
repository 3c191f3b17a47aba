"""Projects the rates of jobs onto other numbers of instances: the flow from sources to sinks.

Stela (section II-E) multiplies the rates of an operator that gets an instance by (k + 1)/k and lets
its children's input follow; the children's own rates stay (`etp.project`). So a child with time to
spare looks congested after a few steps. Here children follow all the way: an operator takes what
comes in, up to what its instances could take while they work, and sends on in proportion.

    could take        instances · records taken / service time, per operator
    taken             min(input, could take)
    edge              taken · selectivity

Where senders are held back, records wait at the sender and the slowest receiver sets its pace: the
rate of a sender is lowered until each of its receivers can take what comes in. What an operator
would get without that is its input, which congestion is judged by.
"""

from dataclasses import dataclass

import numpy as np

from trilithon.measures.group import ratio
from trilithon.measures.rates import BLOCKED, MOST_PARKED, back_pressure, could_take_rate
from trilithon.measures.true_rates import selectivity, true_processing_rate
from trilithon.model.columns import Floats, Ints
from trilithon.model.layout import Layout
from trilithon.model.series import Window

# A source is behind if more than so many seconds of arrivals wait in its topics.
BEHIND_S = 1.0
# Each turn lowers senders to what their receivers take; the error falls by half or more in each.
_MOST_TURNS = 200
_EXACT = 1e-6


@dataclass(frozen=True, eq=False)
class ProjectedRates:
    """Rates per node, in records per second: what wants to come in, what the instances could take,
    and what is taken.
    """

    input: Floats
    could_take: Floats
    taken: Floats
    parallelism: Ints


@dataclass(frozen=True, eq=False)
class Flow:
    """Jobs as flows. `offered` is what a source has to give: infinite where a backlog waits for
    operators that take from the log by themselves. `instance_rate` is what one instance could take.
    """

    layout: Layout
    offered: Floats
    instance_rate: Floats
    selectivity: Floats
    parallelism: Ints
    held_back: bool

    @classmethod
    def measured(cls, window: Window) -> "Flow":
        """The flow of a window. An operator that took nothing has no known limit."""
        layout = window.layout
        parked = np.nan_to_num(back_pressure(window))
        true_rate = true_processing_rate(window)
        # Without service times: what it could take, by its instances.
        by_instance = ratio(could_take_rate(window), layout.parallelism.astype(float))
        rate = np.where(np.isnan(true_rate), by_instance, true_rate)
        rate[np.isnan(rate) | (rate == 0)] = np.inf
        return cls(
            layout=layout,
            offered=_offered(window, parked),
            instance_rate=rate,
            selectivity=np.nan_to_num(selectivity(window), nan=1.0),
            parallelism=layout.parallelism,
            held_back=bool((parked > BLOCKED).any()),
        )

    def rates(self, extra: Ints | None = None, could_take: Floats | None = None) -> ProjectedRates:
        """The rates with `extra` more instances per node, or where nodes could take that much."""
        layout = self.layout
        count = self.parallelism + (0 if extra is None else extra)
        operator = self.parallelism > 0
        could = np.where(operator, self.instance_rate * np.maximum(count, 1), np.inf)
        if could_take is not None:
            could = np.where(operator, could_take, np.inf)
        limit = could.copy()
        sources = layout.source_nodes
        limit[sources] = self._read(could)[sources]
        wanted, taken = self._forward(limit)
        if self.held_back:
            taken = self._paced(limit)
        return ProjectedRates(wanted, could, taken, count)

    def throughput(self, rates: ProjectedRates, sink_weight: Floats) -> Floats:
        """Records per second at the sinks of each job, weighted."""
        sinks = self.layout.sink_nodes
        written = rates.taken[sinks] * sink_weight
        jobs = self.layout.node_job[sinks]
        return np.bincount(jobs, written, len(self.layout.jobs)).astype(np.float64)

    def most(self, sink_weight: Floats) -> Floats:
        """The throughput of each job if only its first operators had a limit: its own maximum."""
        first = np.isin(np.arange(len(self.offered)), self._first())
        unlimited = np.where(first, self.instance_rate, np.inf)
        free = Flow(self.layout, self.offered, unlimited, self.selectivity, self.parallelism, False)
        return free.throughput(free.rates(), sink_weight)

    def _first(self) -> Ints:
        layout = self.layout
        return layout.edge_target[np.isin(layout.edge_source, layout.source_nodes)]

    def _read(self, could: Floats) -> Floats:
        """What sources give. Operators that take by themselves take no more than they can: nothing
        waits for them outside the log.
        """
        layout, read = self.layout, self.offered.copy()
        endless = np.flatnonzero(np.isinf(read))
        for source in endless:
            fed = could[layout.edge_target[layout.edge_source == source]]
            known = fed[np.isfinite(fed)]
            read[source] = known.max() if len(known) else 0.0
        return read

    def _forward(self, limit: Floats) -> tuple[Floats, Floats]:
        layout = self.layout
        wanted = np.zeros(len(limit))
        wanted[layout.source_nodes] = limit[layout.source_nodes]
        for edges in layout.edges_by_depth:
            source, target = layout.edge_source[edges], layout.edge_target[edges]
            sent = np.minimum(wanted, limit)[source] * self.selectivity[edges]
            wanted += np.bincount(target, weights=sent, minlength=len(limit))
        return wanted, np.minimum(wanted, limit)

    def _paced(self, limit: Floats) -> Floats:
        """What is taken where every sender goes at the pace of its slowest receiver."""
        layout, limit = self.layout, limit.copy()
        source, target = layout.edge_source, layout.edge_target
        for _ in range(_MOST_TURNS):
            wanted, taken = self._forward(limit)
            share = ratio(limit, wanted, nothing=np.inf)
            slow = share[target] < 1 - _EXACT
            if not slow.any():
                break
            for edge in np.flatnonzero(slow):
                sender = source[edge]
                limit[sender] = min(limit[sender], taken[sender] * share[target[edge]])
        return taken


def _offered(window: Window, parked: Floats) -> Floats:
    """What the sources of a window have to give. Where a reader is held back, what it would send
    without that; where operators take from the log, everything that waits there.
    """
    layout = window.layout
    nodes = len(layout.node_names)
    arrived = window.sources.arrived / window.span_s
    read = window.sources.taken / window.span_s
    behind = np.nan_to_num(window.lag) > BEHIND_S * np.nan_to_num(arrived)
    b = np.minimum(parked, MOST_PARKED)
    would_send = np.nan_to_num(window.edges.emitted) / (1 - b) / window.span_s
    pushed = np.zeros(nodes)
    np.maximum.at(pushed, layout.edge_source, would_send)
    held = np.zeros(nodes)
    np.maximum.at(held, layout.edge_source, parked)
    sources = layout.source_nodes
    offered = np.zeros(nodes)
    pulled = np.where(behind, np.inf, np.fmax(arrived, read))
    offered[sources] = np.where(
        held[sources] > BLOCKED,
        np.fmax(arrived, pushed[sources]),
        np.nan_to_num(pulled, nan=0.0, posinf=np.inf),
    )
    return offered
