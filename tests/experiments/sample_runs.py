"""Runs with given numbers."""

from collections.abc import Sequence

import numpy as np

from trilithon.experiments.henge.measures import HENGE
from trilithon.experiments.paper import Paper
from trilithon.experiments.runs import Floats, Run, RunAction


def sample_run(
    shares: Sequence[Sequence[float]] | Floats,
    actions: tuple[RunAction, ...] = (),
    *,
    round_s: float = 100.0,
    policy_from_s: float = 200.0,
    queue: Floats | None = None,
    juice: Floats | None = None,
) -> Run:
    """A run of jobs with a maximum of 10 each; juice is the share of it unless given."""
    utility = 10 * np.array(shares)
    jobs = tuple(f"papers/t{i + 1}" for i in range(len(shares)))
    return Run(
        name="sample",
        strategy=HENGE,
        policy_from_s=policy_from_s,
        times_s=round_s * np.arange(1, utility.shape[1] + 1),
        jobs=jobs,
        maxima=np.full(len(jobs), 10.0),
        starts_s=np.zeros(len(jobs)),
        lines={
            "utility": utility,
            "juice": np.array(shares) if juice is None else juice,
            "queue": np.zeros(utility.shape) if queue is None else queue,
            "instances": np.full(utility.shape, 4.0),
        },
        actions=actions,
        final_instances={job: {"a": 2, "third": 2} for job in jobs},
        memory=np.full(utility.shape[1], 0.25),
    )


def under_all(run: Run, paper: Paper) -> dict[str, Run]:
    """The same run for every strategy of a paper."""
    return {strategy.name: run for strategy in paper.strategies}
