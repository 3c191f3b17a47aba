"""Computes all measures of one window: every measure of every job, operator, edge and machine."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trilithon.measures import capacity, queueing, rates, skew, slo
from trilithon.measures.constraints import (
    ConstraintAssessment,
    ConstraintTable,
    constraints_over,
)
from trilithon.measures.etp import Rates, etp, etp_sum, next_target, projected_etp
from trilithon.measures.group import max_by_node, sum_by_node
from trilithon.measures.juice import juice
from trilithon.measures.task_latency import task_latency
from trilithon.model.columns import Floats, Ints
from trilithon.model.series import Series, Window
from trilithon.model.utility import UTILITIES, Utilities

Bools = npt.NDArray[np.bool_]
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, eq=False)
class Assessment:
    """Arrays over nodes, edges, jobs and machines, in the order of the window's layout."""

    window: Window
    # nodes
    input_rate: Floats
    processing_rate: Floats
    capacity: Floats
    cpu_capacity: Floats
    congested_by_capacity: Bools
    congested_by_rates: Bools
    etp: Floats
    projected_etp: Floats
    juice: Floats
    queue: Floats
    longest_queue: Floats
    rate_skew: Floats
    queue_skew: Floats
    utilisation: Floats
    service_s: Floats
    waiting_s: Floats
    kingman_s: Floats
    fitted_e: Floats
    waiting_with_one_more_s: Floats
    back_pressure_origin: Bools
    # edges
    back_pressure: Floats
    channel_s: Floats
    # jobs; `projected_etp` above is after each of these nodes got one more instance
    next_target: Ints
    intents: slo.IntentAssessment
    # the constraints of all jobs
    constraints: ConstraintAssessment
    # machines
    etp_sum: Floats

    @cached_property
    def met(self) -> Floats:
        """By job: 1 if its whole intent is met, thresholds and constraints; 0 if any of it is
        missed; NaN if none is missed but one was not measured, or if there are none.
        """
        limits, met = self.constraints, self.constraints.met
        asked, missed = self.intents.asked.copy(), self.intents.met == 0.0
        unknown = asked & np.isnan(self.intents.met)
        asked[limits.job] = True
        missed[limits.job[met == 0.0]] = True
        unknown[limits.job[np.isnan(met)]] = True
        return np.where(missed, 0.0, np.where(unknown | ~asked, np.nan, 1.0))


def assess_latest(series: Series, window: Window) -> Assessment:
    """All measures of a window at the end of a series, constraints over their own times."""
    assessment = assess(window)
    return replace(assessment, constraints=constraints_over(series, assessment.constraints))


def assess(window: Window, utilities: Utilities = UTILITIES) -> Assessment:
    layout = window.layout
    parked = rates.back_pressure(window)
    asked = rates.input_rate(window, parked)
    done = rates.processing_rate(window)
    busy = capacity.capacity(window)
    congested = capacity.congested_by_rates(asked, done)
    congested[layout.sink_nodes] = False
    share = etp(layout, done, congested)
    load = queueing.operator_load(window)
    e = queueing.fitted_coefficient(load)
    model = queueing.WaitingModel.fit(load, e)
    table = slo.IntentTable.of(window)
    values = slo.values(window, sorted({*QUANTILES, *table.quantiles}), table.sink_weight)
    target = next_target(layout, share, congested)
    extra = np.zeros(len(layout.node_names), dtype=np.int64)
    extra[target[target >= 0]] = 1
    channel_s = queueing.channel_latency(window)
    now = Rates(asked, done, window.edges.emitted / window.span_s, layout.parallelism)
    return Assessment(
        window=window,
        input_rate=asked,
        processing_rate=done,
        capacity=busy,
        cpu_capacity=capacity.cpu_capacity(window),
        congested_by_capacity=capacity.congested_by_capacity(busy),
        congested_by_rates=congested,
        etp=share,
        projected_etp=projected_etp(layout, now, extra),
        next_target=target,
        juice=juice(window).node,
        queue=sum_by_node(layout, window.queue),
        longest_queue=max_by_node(layout, window.queue),
        rate_skew=skew.imbalance(layout, window.instances.taken),
        queue_skew=skew.imbalance(layout, window.queue),
        utilisation=load.utilisation,
        service_s=load.service_s,
        waiting_s=load.waiting_s,
        kingman_s=queueing.kingman(load),
        fitted_e=e,
        waiting_with_one_more_s=model.waiting(layout.parallelism + 1),
        back_pressure_origin=rates.back_pressure_origin(window, parked),
        back_pressure=parked,
        channel_s=channel_s,
        intents=table.judge(values, utilities),
        constraints=ConstraintTable.of(window).assess(
            task_latency(window, load.service_s), channel_s
        ),
        etp_sum=etp_sum(layout, share, window.instances.machine),
    )
