"""Jobs made for a test of Henge, and runs of the policy on a cluster of them."""

from tests.policies.henge.model import Law, ModelCluster, Run, constant, line
from trilithon.model.change import ParallelismChange
from trilithon.policies.decision import Decision
from trilithon.policies.henge import messages
from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.henge.henge_policy import HengePolicy

STEPS = {messages.RECONFIGURATION, messages.REDUCTION, messages.REVERSION}
# The first round with a window that is full, the rounds until an action is judged, and a few more.
START, SETTLE = 6, 6


def run(*laws: Law, given: HengeParameters | None = None, **settings: object) -> Run:
    return Run(ModelCluster.of(laws, **settings), HengePolicy(given or HengeParameters()))


def counts(decision: Decision) -> dict[str, int]:
    (change,) = decision.changes
    assert isinstance(change, ParallelismChange)
    return dict(change.parallelism)


def harmful(name: str, **settings: object) -> Law:
    """A job that is hurt by what it is given: it misses its intent and would have more."""
    job = line(name, **settings)  # type: ignore[arg-type]
    return Law(job, lambda p: 8.0 * p["work"], lambda _: {"work": 0.6})


def rivals(capacity: float) -> tuple[Law, Law]:
    """A job that nothing helps, and one that matters more and meets its intent
    with all that it has and no less.
    """
    poor = constant(line("poor", initial=2), 1000, work=capacity)
    rich = constant(line("rich", priority=50, initial=20), 20)
    rich.latency_ms = lambda p: 20.0 if p["work"] == 20 else 70.0
    return poor, rich


def all_or_nothing(initial: int) -> Law:
    """A job that less than six instances do not help at all."""
    return Law(
        line("poor", initial=initial),
        lambda p: 20.0 if p["work"] >= 6 else 1000.0,
        lambda p: {"work": min(1.0, 2 / p["work"])},
    )


def congested(cluster: ModelCluster) -> float:
    """The load of machines that have more runnable threads than cores."""
    return cluster.cores + 1
