"""What holds for every cluster: Henge converges within the paper's bound,
keeps bounds, and is repeatable.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from hypothesis import example, given
from hypothesis import strategies as st

from tests.policies.henge.model import Counts, Law, ModelCluster, Run, line
from tests.strategies import snapshots
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.change import ParallelismChange
from trilithon.model.intent import Metric, Threshold
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.policies.henge import messages
from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.henge.henge_policy import HengePolicy
from trilithon.policies.henge.memory import Memory
from trilithon.policies.policy import Verdict
from trilithon.policies.scene import Cluster, JobStatus, Scene, Span

STEPS = {messages.RECONFIGURATION, messages.REDUCTION, messages.REVERSION}
PARAMETERS = HengeParameters()


@dataclass(frozen=True)
class Growth:
    """A job whose utility grows with the instances of one operator, up to what can be had; past a
    peak it is worth half. Its second operator is there to be reduced, and does not matter.
    """

    first: float
    most: float
    exponent: float
    capacity: float
    instances: int
    peak: int
    priority: int

    def fraction(self, counts: Counts) -> float:
        p = counts["work"]
        grown = min(self.most, self.first * (p / self.instances) ** self.exponent)
        return float(max(self.first, grown) * (1.0 if p <= self.peak else 0.5))

    def busy(self, counts: Counts) -> dict[str, float]:
        return {"work": min(1.0, self.capacity * self.instances / counts["work"]), "spare": 0.01}

    def law(self, name: str) -> Law:
        job = line(name, "work", "spare", initial=self.instances, priority=self.priority)
        return Law(job, lambda p: 60 / self.fraction(p), self.busy)


growths = st.builds(
    lambda first, most, **rest: Growth(first=first, most=max(first, most), **rest),
    first=st.sampled_from([1.0, 0.9, 0.6, 0.3, 0.1, 0.03]),
    most=st.sampled_from([1.0, 1.0, 1.0, 0.9, 0.5, 0.3]),
    exponent=st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.0]),
    capacity=st.sampled_from([0.2, 0.4, 0.6, 0.8, 1.0]),
    instances=st.integers(1, 12),
    peak=st.sampled_from([12, 20, 1000, 1000]),
    priority=st.integers(1, 90),
)


@given(
    st.lists(growths, min_size=1, max_size=4),
    st.booleans(),
    st.none() | st.integers(0, 60),
    st.sampled_from(["max_total", "max_min"]),
    st.sampled_from([1, 3, 24]),
)
def test_a_well_behaved_cluster_converges_within_the_bound(
    jobs: list[Growth], congested: bool, room: int | None, goal: str, step_most: int
) -> None:
    """SoCC'18, theorem 1, with rounding: N · (⌊log₁₊Δ F⌋ + 1) + 2 steps, F = max(max / initial)."""
    cluster = ModelCluster.of(
        [job.law(f"j{i}") for i, job in enumerate(jobs)],
        load=(lambda c: c.cores + 1) if congested else (lambda _: 1.0),
    )
    cluster.slots = None if room is None else cluster.instances() + room
    henge = Run(cluster, HengePolicy(replace(PARAMETERS, goal=goal, step_most=step_most)))
    f = max(1 / min(1.0, job.fraction({"work": job.instances})) for job in jobs)
    bound = len(jobs) * (math.floor(math.log(f, 1 + PARAMETERS.improvement)) + 1) + 2
    steps = 0
    for _ in range(10 * (bound + 3)):
        steps += any(decision.reason in STEPS for decision in henge.rounds(1))
        if henge.phase == "converged":
            break
    assert henge.phase == "converged"
    assert steps <= bound


@given(st.lists(growths, min_size=1, max_size=3), st.none() | st.integers(0, 20))
@example(jobs=[Growth(0.03, 1.0, 2.0, 0.4, 10, 12, 1)], room=None)
def test_what_it_ends_with_is_worth_no_less_than_what_it_began_with(
    jobs: list[Growth], room: int | None
) -> None:
    cluster = ModelCluster.of([job.law(f"j{i}") for i, job in enumerate(jobs)])
    cluster.slots = None if room is None else cluster.instances() + room

    def total() -> float:
        return math.fsum(
            job.priority * job.fraction(cluster.allocations[f"t/j{i}"].parallelism)
            for i, job in enumerate(jobs)
        )

    before = total()
    henge = Run(cluster, HengePolicy())
    for _ in range(1000):
        henge.rounds(1)
        if henge.phase == "converged":
            break
    assert henge.phase == "converged"
    # A fall that is next to nothing of what could be had is none, however little there was.
    allowed = PARAMETERS.least_fall * sum(job.priority for job in jobs)
    assert total() >= before - max(PARAMETERS.noise * before, allowed)


Event = tuple[int, str, float]
events = st.tuples(
    st.integers(0, 2),
    st.sampled_from(
        ["latency", "capacity", "blind", "priority", "rate", "rescale", "gone", "load", "hold"]
    ),
    st.floats(0.01, 3),
)


def happen(cluster: ModelCluster, law: Law, kind: str, size: float) -> None:
    """Something from outside, of some size."""
    job = law.job.id
    changes: dict[str, Callable[[], object]] = {
        "latency": lambda: setattr(law, "latency_ms", lambda _: 60 * size),
        "capacity": lambda: setattr(law, "capacity", lambda _: {"work": min(1.0, size)}),
        "blind": lambda: setattr(law, "metrics_missing", not law.metrics_missing),
        "priority": lambda: cluster.set_priority(job, round(10 * size, 3)),
        "rate": lambda: setattr(law, "rate_per_s", 100 * size),
        "rescale": lambda: cluster.rescale(job, work=1 + int(4 * size)),
        "gone": lambda: cluster.remove(job) if job in cluster.laws else cluster.add(law),
        "load": lambda: setattr(cluster, "load", lambda _: 8 * size),
        "hold": lambda: cluster.held.update({job: "QUIET" if size > 1 else ""}),
    }
    if job in cluster.laws or kind == "gone":
        changes[kind]()


ASKED = (
    (Threshold(Metric.LATENCY, 60),),
    (Threshold(Metric.LATENCY, 90, "p99"),),
    (Threshold(Metric.JUICE, 1.0), Threshold(Metric.LATENCY, 70), Threshold(Metric.THROUGHPUT, 50)),
)


def chaos(happenings: list[list[Event]], *, backwards: bool) -> list[bytes]:
    """The bytes of what was decided and remembered in each round."""
    laws = [
        Law(
            line(f"j{i}", initial=3, most=12, thresholds=asked),
            lambda _: 100.0,
            lambda _: {"work": 0.5},
            tail=1.7,
        )
        for i, asked in enumerate(ASKED)
    ]
    cluster = ModelCluster.of(laws, slots=60, backwards=backwards)
    henge = Run(cluster, HengePolicy(HengeParameters(window_s=30, recover_s=60, settle_s=20)))
    rounds = []
    for round_ in happenings:
        for who, kind, size in round_:
            happen(cluster, laws[who], kind, size)
        decisions = henge.rounds(2)
        for decision in decisions:
            for change in decision.changes:
                assert isinstance(change, ParallelismChange)
                assert all(1 <= n <= 12 for n in change.parallelism.values())
                assert not cluster.laws[change.job].metrics_missing
        assert Memory.of(henge.state["henge"]).as_json() == henge.state["henge"]
        rounds.append(json.dumps([[asdict(d) for d in decisions], henge.state], allow_nan=False))
    return [text.encode() for text in rounds]


@given(st.lists(st.lists(events, max_size=2), min_size=4, max_size=8))
def test_whatever_happens_the_same_is_decided_in_any_order_of_jobs(
    happenings: list[list[Event]],
) -> None:
    assert chaos(happenings, backwards=False) == chaos(happenings, backwards=True)


def scene_of(snapshot: Snapshot, slots: int | None) -> Scene:
    counts = {name: snapshot.job(name).parallelism for name in snapshot.layout.jobs}
    statuses = {
        name: JobStatus(
            job=name,
            tenant=snapshot.jobs[name].tenant,
            allocation=Allocation(name, 1, counts[name]),
            accepted_s=-1e6,
            spans={operator: Span(1, 12) for operator in counts[name]},
        )
        for name in snapshot.layout.jobs
    }
    used = sum(sum(parallelism.values()) for parallelism in counts.values())
    return Scene(
        round=1,
        series=Series.of([replace(snapshot, since_s=snapshot.time_s - 10)]),
        statuses=statuses,
        cluster=Cluster(
            Capabilities(dict.fromkeys(Ability, How.LIVE)),
            None if slots is None else used + slots,
            used,
        ),
    )


@given(
    snapshots(),
    st.none() | st.integers(0, 5),
    st.sampled_from(["capacity", "queue", "etp"]),
    st.sampled_from(["max_total", "max_min"]),
)
def test_whatever_is_missing_a_verdict_comes_and_keeps_every_bound(
    snapshot: Snapshot, slots: int | None, congestion: str, goal: str
) -> None:
    parameters = HengeParameters(
        window_s=10, congestion=congestion, goal=goal, settle_s=0, stable_rounds=1
    )
    policy = HengePolicy(parameters)
    scene = scene_of(snapshot, slots)
    state: dict[str, object] = {"seed": 7}
    verdicts: list[Verdict] = []
    for _ in range(2):
        verdict = policy.decide(scene, state)
        state = json.loads(json.dumps(verdict.state, allow_nan=False))
        assert state == verdict.state
        verdicts.append(verdict)
    assert state["seed"] == 7
    for verdict in verdicts:
        ids = [decision.id for decision in verdict.decisions]
        assert len(set(ids)) == len(ids)
        more = 0
        for decision in verdict.decisions:
            assert decision.reason in messages.REASONS
            for change in decision.changes:
                assert isinstance(change, ParallelismChange)
                before = scene.statuses[change.job].allocation
                more += before.rescaled(change.parallelism).instances - before.instances
                assert all(1 <= n <= 12 for n in change.parallelism.values())
        assert slots is None or more <= slots
