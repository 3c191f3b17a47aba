"""One round of Henge, and its crunch indicator: 10, 100 and 1,000 jobs
of 10 operators × 4 instances.

    python -m bench.henge

Prints the time of a round, how large the state is that it leaves, and the time of the indicator.
"""

import json
from functools import partial

import numpy as np

from bench.measures import INSTANCES, OPERATORS, best_of, snapshots
from trilithon.model.allocation import initial
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.series import Series
from trilithon.policies.henge.crunch import compute_crunch
from trilithon.policies.henge.henge_policy import HengePolicy
from trilithon.policies.scene import Cluster, JobStatus, Scene, Span


def scene(jobs: int) -> Scene:
    """All jobs over one minute, with as many slots again as they use."""
    first, second = snapshots(jobs, np.random.default_rng(7))
    statuses = {
        name: JobStatus(
            name,
            job.tenant,
            initial(job),
            accepted_s=-3600,
            spans={o.name: Span(o.parallelism.min, o.parallelism.max) for o in job.operators},
        )
        for name, job in second.jobs.items()
    }
    used = sum(status.allocation.instances for status in statuses.values())
    live = Capabilities(dict.fromkeys(Ability, How.LIVE))
    cluster = Cluster(live, 2 * used, used)
    return Scene(1, Series((first, second)), statuses, cluster)


def main() -> None:
    policy = HengePolicy()
    print(f"a round of Henge, jobs of {OPERATORS} operators × {INSTANCES} instances, best of 5\n")
    print(f"{'jobs':>7} {'round ms':>9} {'state kB':>9} {'crunch ms':>10}")
    for jobs in (10, 100, 1000):
        seen = scene(jobs)
        verdict = policy.decide(seen, {"seed": 1})
        assert verdict.decisions
        state = dict(verdict.state)
        spent = best_of(partial(policy.decide, seen, state))
        indicator = best_of(partial(compute_crunch, seen, state))
        size = len(json.dumps(state))
        print(f"{jobs:>7,} {spent * 1e3:>9.1f} {size / 1e3:>9.1f} {indicator * 1e3:>10.1f}")


if __name__ == "__main__":
    main()
