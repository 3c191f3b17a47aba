"""Owns what a batch's end costs: the stall between two batches, and the latency that no job gets below for it.

Records that come while the next batch is planned and its tasks start wait for it. With a stall of s every T
seconds a share (s − x) / T of the records waits longer than x, so the q-quantile cannot be below
s − (1 − q) · T, and the mean not below s² / 2T.
"""

from typing import Final

from trilithon.model.intent import Metric
from trilithon.model.job import Job

# Measured with a warm JVM on a quiet machine (`python -m bench.proof_boundaries --parts boundaries`): 0.33 s
# with 17 tasks, 0.55 s with 33. On two executors it is about half a second longer.
BASE_S: Final = 0.1
PER_TASK_S: Final = 0.014


def stall_s(tasks: int) -> float:
    """How long nothing comes out when a batch of so many tasks ends and the next begins."""
    return BASE_S + PER_TASK_S * tasks


def floor_ms(job: Job, quantile: float | None) -> float:
    """The latency in ms that the stall alone puts under a quantile, or under the mean (None)."""
    stalled_s = stall_s(job.tasks)
    if quantile is None:
        return 1000 * stalled_s**2 / (2 * job.batch_s)
    return max(0.0, 1000 * (stalled_s - (1 - quantile) * job.batch_s))


def below_floor(job: Job) -> list[str]:
    """Sentences about thresholds that no parallelism can meet, because batches are too short for them."""
    found = []
    for threshold in job.intent.thresholds:
        if threshold.metric is not Metric.LATENCY:
            continue
        floor = floor_ms(job, threshold.quantile)
        if floor > threshold.value:
            found.append(
                f"{threshold} cannot be kept: each end of a batch holds records up for about "
                f"{1000 * stall_s(job.tasks):.0f} ms, which puts {threshold.statistic or 'the mean'} at "
                f"{floor:.0f} ms or more with batches of {job.batch_s:g} s. Make them longer."
            )
    return found
