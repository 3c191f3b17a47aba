"""Runs a variant of an experiment on the simulated cluster under one of the strategies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from trilithon.control.rules import Limits
from trilithon.experiments.definition import Experiment, Variant
from trilithon.experiments.runs import Run
from trilithon.experiments.scenario_builder import ROUND_S, ScenarioBuilder
from trilithon.experiments.search import (
    GOOD_ENOUGH,
    Allocations,
    Search,
    allocated,
    job_groups,
    manual_allocations,
    peak_allocations,
)
from trilithon.experiments.seeds import SEEDS, is_random, with_seed
from trilithon.experiments.strategies import Strategy, StrategyKind
from trilithon.plugins import policy
from trilithon.policies.layered import SEPARATOR
from trilithon.scenarios.run import simulate
from trilithon.scenarios.scenario import Scenario

# Allocations that a search tries; fewer where a single run takes long.
MOST_TRIED: Final = 60
MOST_JOB_HOURS: Final = 5_000
# Nothing stood between the papers' systems and their engines: the guard lets everything through.
UNGUARDED: Final = Limits(
    round_s=ROUND_S,
    cool_down_s=0.0,
    up_factor=1e6,
    down_factor=0.0,
    down_delay_s=0.0,
    saturated=1.0,
    backlog_s=1e9,
)


@dataclass
class Runner:
    """Runs variants with one set of chosen numbers. `progress` is called with the share done.

    The search for the best static allocation may go on from where `policy` ended, if it is given.
    """

    builder: ScenarioBuilder
    policy: Strategy | None
    most_tried: int = MOST_TRIED
    # Of runs that are random.
    seeds: tuple[int, ...] = SEEDS
    progress: Callable[[str, float], None] = lambda _what, _share: None

    def run(self, experiment: Experiment, variant: Variant, strategy: Strategy) -> tuple[Run, ...]:
        """One run, or one per seed if anything is random.

        A static allocation is searched for with the first seed and run with all.
        """
        scenario = self.builder.scenario(experiment, variant)
        return self.run_seeds(scenario, strategy, dict(variant.parameters))

    def run_seeds(
        self, scenario: Scenario, strategy: Strategy, parameters: Mapping[str, Any]
    ) -> tuple[Run, ...]:
        seeds = self.seeds if is_random(scenario) else self.seeds[:1]
        prepared = self.prepared(with_seed(scenario, seeds[0]), strategy, parameters)
        return tuple(
            self.simulated(with_seed(prepared, seed), strategy, scenario.warm_up_s)
            for seed in seeds
        )

    def prepared(
        self, scenario: Scenario, strategy: Strategy, parameters: Mapping[str, Any]
    ) -> Scenario:
        """The scenario with the strategy's policy, or with its static allocation.

        The parameters are for the paper's own policy: no other one has them.
        """
        if strategy.kind is StrategyKind.UNCONTROLLED:
            return scenario
        if strategy.kind is StrategyKind.POLICY:
            own = self.policy is None or strategy == self.policy
            given = {**dict(strategy.parameters), **(parameters if own else {})}
            layers = strategy.policy.split(SEPARATOR)
            acting = policy(layers if len(layers) > 1 else strategy.policy, given)
            return replace(scenario, policy=acting)
        self.progress(f"{scenario.name} {strategy.name}: searching", 0.0)
        manual = manual_allocations(scenario, strategy.headroom)
        if strategy.kind is StrategyKind.MANUAL:
            return allocated(scenario, job_groups(scenario), manual)
        return self._best_static(scenario, manual, parameters)

    def _best_static(
        self, scenario: Scenario, manual: Allocations, parameters: Mapping[str, Any]
    ) -> Scenario:
        hours = len(scenario.jobs) * scenario.length_s / 3600
        most = max(20, min(self.most_tried, int(MOST_JOB_HOURS / max(hours, 1e-9))))
        by_group = Search(scenario, scenario.warm_up_s, most)
        best = by_group.best([manual, peak_allocations(scenario)])
        if by_group.worth(best) >= GOOD_ENOUGH or self.policy is None:
            return allocated(scenario, by_group.groups, best)
        # Where there is not enough for all, identical jobs may have to differ; and what the policy
        # ended with is an allocation, too.
        by_job = Search(scenario, scenario.warm_up_s, most // 3, per_job=True)
        starts = [by_group.per_job_allocations(best), self._ended(scenario, parameters)]
        return allocated(scenario, by_job.groups, by_job.best(starts))

    def _ended(self, scenario: Scenario, parameters: Mapping[str, Any]) -> Allocations:
        """The allocations with which the policy leaves the jobs."""
        assert self.policy is not None  # noqa: S101 - checked by the caller
        prepared = self.prepared(scenario, self.policy, parameters)
        run = self.simulated(prepared, self.policy, scenario.warm_up_s)
        return {name: dict(counts) for name, counts in run.final_instances.items()}

    def simulated(self, scenario: Scenario, strategy: Strategy, policy_from_s: float) -> Run:
        name = f"{scenario.name} {strategy.name}"
        result = simulate(
            scenario,
            limits=replace(UNGUARDED, round_s=scenario.round_s),
            tell=lambda now, all_: self.progress(name, now / all_),
        )
        return Run.of(scenario, strategy.name, result.figures, policy_from_s)
