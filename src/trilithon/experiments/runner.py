"""Runs a variant of an experiment on the simulated cluster under one of the strategies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from trilithon.control.rules import Limits
from trilithon.experiments.definition import Experiment, Variant
from trilithon.experiments.run_store import RunStore, scenario_key
from trilithon.experiments.runs import Run, RunAction
from trilithon.experiments.scenario_builder import ROUND_S, ScenarioBuilder
from trilithon.experiments.search import (
    GOOD_ENOUGH,
    Allocations,
    CoarseRun,
    Search,
    allocated,
    coarse_run,
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


# What a stored run consists of: another version may store more of it.
_RUN: Final = tuple(part.name for kind in (Run, RunAction) for part in fields(kind))


@dataclass
class StoredSearch(Search):
    """A search that takes runs from a store: another search may have tried the same allocations."""

    store: RunStore = field(default_factory=RunStore)

    def _tried(self, wanted: Allocations) -> CoarseRun:
        key = repr(sorted((name, sorted(counts.items())) for name, counts in wanted.items()))
        if key not in self.tried:
            scenario = allocated(self.scenario, self.groups, wanted)
            self.tried[key] = self.store.get(
                ("coarse", self.from_s, scenario_key(scenario)),
                lambda: coarse_run(scenario, self.from_s),
            )
        return self.tried[key]


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
    store: RunStore = field(default_factory=RunStore)

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
            self._stored_run(with_seed(prepared, seed), strategy, parameters) for seed in seeds
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
            layers = strategy.policy.split(SEPARATOR)
            given = self._given(strategy, parameters)
            acting = policy(layers if len(layers) > 1 else strategy.policy, given)
            return replace(scenario, policy=acting)
        self.progress(f"{scenario.name} {strategy.name}: searching", 0.0)
        manual = self._manual(scenario, strategy.headroom)
        if strategy.kind is StrategyKind.MANUAL:
            return allocated(scenario, job_groups(scenario), manual)
        return self._best_static(scenario, manual, parameters)

    def _given(self, strategy: Strategy, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that a strategy's policy gets."""
        own = self.policy is None or strategy == self.policy
        return {**dict(strategy.parameters), **(parameters if own else {})}

    def _manual(self, scenario: Scenario, headroom: float) -> Allocations:
        groups = job_groups(scenario)
        # It begins with one instance of each operator, whatever the jobs begin with.
        ones = {
            name: dict.fromkeys((o.name for o in jobs[0].job.operators), 1)
            for name, jobs in groups.items()
        }
        members = [(name, [one.job.id for one in jobs]) for name, jobs in groups.items()]
        key = ("manual", headroom, members, scenario_key(allocated(scenario, groups, ones)))
        return self.store.get(key, lambda: manual_allocations(scenario, headroom))

    def _best_static(
        self, scenario: Scenario, manual: Allocations, parameters: Mapping[str, Any]
    ) -> Scenario:
        hours = len(scenario.jobs) * scenario.length_s / 3600
        most = max(20, min(self.most_tried, int(MOST_JOB_HOURS / max(hours, 1e-9))))
        by_group = StoredSearch(scenario, scenario.warm_up_s, most, store=self.store)
        best = by_group.best([manual, peak_allocations(scenario)])
        if by_group.worth(best) >= GOOD_ENOUGH or self.policy is None:
            return allocated(scenario, by_group.groups, best)
        # Where there is not enough for all, identical jobs may have to differ; and what the policy
        # ended with is an allocation, too.
        by_job = StoredSearch(
            scenario, scenario.warm_up_s, most // 3, per_job=True, store=self.store
        )
        starts = [by_group.per_job_allocations(best), self._ended(scenario, parameters)]
        return allocated(scenario, by_job.groups, by_job.best(starts))

    def _ended(self, scenario: Scenario, parameters: Mapping[str, Any]) -> Allocations:
        """The allocations with which the policy leaves the jobs."""
        assert self.policy is not None  # noqa: S101 - checked by the caller
        prepared = self.prepared(scenario, self.policy, parameters)
        run = self._stored_run(prepared, self.policy, parameters)
        return {name: dict(counts) for name, counts in run.final_instances.items()}

    def _stored_run(
        self, scenario: Scenario, strategy: Strategy, parameters: Mapping[str, Any]
    ) -> Run:
        """The run of a prepared scenario; one with a policy depends on that policy, too."""
        if strategy.kind is not StrategyKind.POLICY:
            return self.simulated(scenario, strategy, scenario.warm_up_s)
        given = sorted(self._given(strategy, parameters).items())
        key = ("policy", _RUN, strategy.policy, given, scenario_key(scenario))
        run = self.store.get(key, lambda: self._simulated(scenario, strategy, scenario.warm_up_s))
        return replace(run, name=scenario.name, strategy=strategy.name)

    def simulated(self, scenario: Scenario, strategy: Strategy, policy_from_s: float) -> Run:
        """A run of a prepared scenario; a static allocation may have been run under another name.

        What a policy does is not known from its scenario alone: it is simulated in any case.
        """
        if scenario.policy is not None:
            return self._simulated(scenario, strategy, policy_from_s)
        key = ("static", _RUN, policy_from_s, scenario_key(scenario))
        run = self.store.get(key, lambda: self._simulated(scenario, strategy, policy_from_s))
        return replace(run, name=scenario.name, strategy=strategy.name)

    def _simulated(self, scenario: Scenario, strategy: Strategy, policy_from_s: float) -> Run:
        name = f"{scenario.name} {strategy.name}"
        result = simulate(
            scenario,
            limits=replace(UNGUARDED, round_s=scenario.round_s),
            tell=lambda now, all_: self.progress(name, now / all_),
        )
        return Run.of(scenario, strategy.name, result.figures, policy_from_s)
