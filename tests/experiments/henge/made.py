"""Runs whose numbers are given."""

from collections.abc import Sequence

import numpy as np

from trilithon.experiments.runs import Act, Floats, Run, Steering


def made(
    shares: Sequence[Sequence[float]] | Floats,
    acts: tuple[Act, ...] = (),
    *,
    look_s: float = 100.0,
    from_s: float = 200.0,
    queue: Floats | None = None,
    juice: Floats | None = None,
) -> Run:
    """A run of jobs with a maximum of 10 each; juice is the share of it unless told."""
    utility = 10 * np.array(shares)
    jobs = tuple(f"papers/t{i + 1}" for i in range(len(shares)))
    return Run(
        name="made",
        steering=Steering.HENGE,
        from_s=from_s,
        times_s=look_s * np.arange(1, utility.shape[1] + 1),
        jobs=jobs,
        maxima=np.full(len(jobs), 10.0),
        starts_s=np.zeros(len(jobs)),
        lines={
            "utility": utility,
            "juice": np.array(shares) if juice is None else juice,
            "queue": np.zeros(utility.shape) if queue is None else queue,
        },
        acts=acts,
        last={job: {"a": 2, "third": 2} for job in jobs},
        memory=np.full(utility.shape[1], 0.25),
    )
