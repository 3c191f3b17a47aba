"""Estimates the stall between two batches and the lower bound that it puts on a job's latency.

Records that arrive while the next batch is planned and its tasks start must wait. With a stall of s
every T seconds a share (s − x) / T of the records waits longer than x, so the q-quantile cannot be
below s − (1 − q) · T, and the mean cannot be below s² / 2T.
"""

from typing import Final

from trilithon.engines.spark.cuts import cut_into_parts
from trilithon.model.intent import Metric
from trilithon.model.job import Job

# Measured with a warm JVM on an idle machine (`python -m bench.proof_boundaries --parts
# boundaries`): 0.33 s with 17 tasks, 0.55 s with 33. On two executors it is about 0.5 s longer.
BASE_S: Final = 0.1
PER_TASK_S: Final = 0.014


def stall_s(tasks: int) -> float:
    """How long a job writes nothing between two batches of this many tasks."""
    return BASE_S + PER_TASK_S * tasks


def stalled_tasks(job: Job) -> int:
    """The tasks of the job's largest part: each part pauses by itself, for as long as its own tasks
    need.
    """
    return max(part.tasks for part in cut_into_parts(job).parts)


def floor_ms(job: Job, quantile: float | None, tasks: int | None = None) -> float:
    """The lower bound in ms that the stall puts on a latency quantile, or on the mean (None);
    `tasks` are those that pause together, if they are not those of a part.
    """
    stalled = tasks or stalled_tasks(job)
    if quantile is None:
        return mean_pause_ms(stalled, job.batch_s)
    return max(0.0, 1000 * (stall_s(stalled) - (1 - quantile) * job.batch_s))


def mean_pause_ms(tasks: int, batch_s: float) -> float:
    """What stalls between batches of this many tasks add to the mean latency."""
    return 1000 * stall_s(tasks) ** 2 / (2 * batch_s)


def unreachable_thresholds(job: Job, tasks: int | None = None) -> list[str]:
    """A sentence for each threshold that no parallelism can meet because batches are too short."""
    sentences, stall_ms = [], 1000 * stall_s(tasks or stalled_tasks(job))
    for threshold in job.intent.thresholds:
        if threshold.metric is not Metric.LATENCY:
            continue
        floor = floor_ms(job, threshold.quantile, tasks)
        if floor > threshold.value:
            sentences.append(
                f"{threshold} cannot be met: the job pauses about "
                f"{stall_ms:.0f} ms between batches of {job.batch_s:g} s, so "
                f"{threshold.statistic or 'the mean'} is at least {floor:.0f} ms. "
                "Use longer batches."
            )
    return sentences
