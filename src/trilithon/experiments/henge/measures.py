"""Measures our numbers for the figures that Henge's texts print: one function per experiment."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from trilithon.experiments.henge.catalogue import HOUR_S, LOST_S, SPIKE_S, TREBLED_S
from trilithon.experiments.markdown import listed, percent
from trilithon.experiments.paper import NothingDecided, Runs, Values
from trilithon.experiments.runs import END_S, Bools, Floats, Run
from trilithon.experiments.strategies import MANUAL, UNCONTROLLED

HENGE: Final = "henge"
RECONFIGURATION: Final = "RECONFIGURATION"
REDUCTION: Final = "REDUCTION"
BLACKLISTED: Final = "BLACKLISTED"
# An intent counts as met from here on, as for the policy itself.
MET: Final = 0.995
NOTHING: Final = 1e-3
# How many rounds a minute has.
MINUTE: Final = 6


def henge_run(runs: Runs, variant: str) -> Run:
    return runs[variant][HENGE]


def only_variant(runs: Runs) -> Mapping[str, Run]:
    """The runs of the only variant, by strategy."""
    (by_strategy,) = runs.values()
    return by_strategy


def stays_from(times_s: Floats, holds: Bools) -> float | None:
    """The time from which on something holds to the end; None if it does not hold there."""
    if not len(holds) or not holds[-1]:
        return None
    broken = np.flatnonzero(~holds)
    first = int(broken[-1]) + 1 if len(broken) else 0
    return float(times_s[first])


def _met(run: Run, job: str) -> Bools:
    met: Bools = run.line(job, "share") >= MET
    return met


def all_met_from(run: Run) -> float | None:
    return stays_from(run.times_s, np.all([_met(run, job) for job in run.jobs], axis=0))


def _at_end(run: Run, job: str) -> float:
    return float(np.nanmean(run.line(job, "share")[run.last_minutes]))


def reconfigurations(run: Run) -> Counter[str]:
    """How many Reconfigurations changed each job."""
    return Counter(action.job or "" for action in run.changes(RECONFIGURATION))


def _between(run: Run, start_s: float, end_s: float) -> Bools:
    between: Bools = (run.times_s > start_s) & (run.times_s <= end_s)
    return between


def _smooth(values: Floats) -> Floats:
    """The mean over the last minute, without the rounds that are missing."""
    padded = np.concatenate([np.full(MINUTE - 1, np.nan), values])
    minutes = np.lib.stride_tricks.sliding_window_view(padded, MINUTE)
    known = ~np.isnan(minutes)
    means: Floats = np.nansum(minutes, axis=1) / np.where(
        known.any(axis=1), known.sum(axis=1), np.nan
    )
    return means


def juice(runs: Runs) -> Values:
    """Of single jobs, as in the report's figures: the first that is changed, and the first that is
    changed after the load has trebled. Juice is stable again when that of all jobs is.
    """
    run = only_variant(runs)[HENGE]
    smooth = {job: _smooth(run.line(job, "juice")) for job in run.jobs}
    changes = run.changes(RECONFIGURATION)
    early = next((action for action in changes if action.time_s <= TREBLED_S), None)
    later = next((action for action in changes if action.time_s > TREBLED_S), None)
    after = run.times_s > TREBLED_S
    least = np.min([smooth[job] for job in run.jobs], axis=0)
    values: Values = dict.fromkeys(("juice when it has fallen", "juice has fallen"))
    if later is not None and later.job is not None:
        line = smooth[later.job]
        before = _between(run, TREBLED_S, later.time_s)
        fallen = run.times_s[after & (line < MET)]
        values["juice when it has fallen"] = float(line[before][-1])
        values["juice has fallen"] = float(fallen[0]) if len(fallen) else None
    values["stable again by"] = stays_from(run.times_s[after], least[after] >= MET)
    name = "stable after the first action by"
    values[name] = None
    if early is not None and early.job is not None:
        span = _between(run, run.policy_from_s, TREBLED_S)
        values[name] = stays_from(run.times_s[span], smooth[early.job][span] >= MET)
    return values


def initial_configuration(runs: Runs) -> Values:
    def instances(variant: str) -> float:
        (counts,) = henge_run(runs, variant).final_instances.values()
        return float(counts["third"])

    def rounds(variant: str) -> float:
        return float(sum(reconfigurations(henge_run(runs, variant)).values()))

    def most(ms: int, factor: int) -> float:
        names = [
            name for name in runs if name.startswith(f"{ms}ms-") and name.endswith(f"-{factor}x")
        ]
        return max(map(rounds, names))

    values: Values = {}
    for suffix, factor in (("", 1), (", twice the load", 2)):
        for ms in (70, 60):
            variant = f"{ms}ms-10-{factor}x"
            values[f"instances from 10, {ms} ms{suffix}"] = instances(variant)
            values[f"rounds from 10, {ms} ms{suffix}"] = rounds(variant)
    values["rounds at 50 ms, twice the load"] = most(50, 2)
    values["rounds at 60 ms, twice the load"] = most(60, 2)
    return values


def priorities(runs: Runs) -> Values:
    run = only_variant(runs)[HENGE]
    met_s = all_met_from(run)
    return {
        "all intents met after": None if met_s is None else met_s - run.policy_from_s,
        "Reconfigurations": float(sum(reconfigurations(run).values())),
    }


def hybrid(runs: Runs) -> Values:
    run = only_variant(runs)[HENGE]
    steps, changes = reconfigurations(run), run.changes(RECONFIGURATION)
    return {
        "all intents met by": all_met_from(run),
        "first action at": changes[0].time_s if changes else None,
        "jobs that needed one Reconfiguration": float(sum(n == 1 for n in steps.values())),
        "Reconfigurations of the tenth": float(max(steps.values(), default=0)),
    }


def spikes(runs: Runs) -> Values:
    run = only_variant(runs)[HENGE]
    return {"total utility during the spikes": float(run.utility[run.times_s > 3600].mean())}


def diurnal(runs: Runs) -> Values:
    by_strategy = only_variant(runs)
    run = by_strategy[HENGE]
    values: Values = {}
    for name, strategy in (
        ("Henge", HENGE),
        ("manual", MANUAL.name),
        ("uncontrolled", UNCONTROLLED.name),
    ):
        compared = by_strategy[strategy]
        values[f"average satisfaction, {name}"] = compared.average
        values[f"15th percentile, {name}"] = compared.percentile(15)
        values[f"median, {name}"] = compared.percentile(50)
        values[f"90th percentile, {name}"] = compared.percentile(90)
    outage_h = sum(action.outage_s for action in run.changes()) / HOUR_S
    hour_15 = _between(run, 15 * 600 - 60, 15 * 600)
    values["share of the maximum by hour 15"] = float(run.satisfaction[hour_15].mean())
    values["time of actions over all jobs"] = outage_h
    values["the same, of all job time"] = outage_h / (len(run.jobs) * run.times_s[-1] / HOUR_S)
    values["longest convergence"] = _longest_convergence(run)
    return values


def _longest_convergence(run: Run) -> float | None:
    """From the first Reconfiguration of a job that misses its intent until it meets it, or to the
    end of the run if it never does.
    """
    longest = None
    for job in run.jobs:
        met = _met(run, job)
        starts_s = [action.time_s for action in run.changes(RECONFIGURATION) if action.job == job]
        done_s = -np.inf
        for at_s in starts_s:
            if at_s <= done_s:
                continue  # of the same search
            later = np.flatnonzero(met & (run.times_s > at_s))
            done_s = float(run.times_s[later[0] if len(later) else -1])
            longest = max(longest or 0.0, done_s - at_s)
    return longest


def cost(runs: Runs) -> Values:
    scarce = runs["40%"]
    share = scarce[HENGE].at_end
    other = scarce[UNCONTROLLED.name].at_end
    return {
        "satisfaction at 60 %": henge_run(runs, "60%").at_end,
        "satisfaction at 40 %": share,
        "against uncontrolled at 40 %": share / other if other > 0 else None,
    }


def production(runs: Runs) -> Values:
    run = only_variant(runs)[HENGE]

    def median(job: str) -> float:
        return float(np.median(np.nan_to_num(run.line(f"papers/{job}", "utility"))))

    medians = [median(job) for job in ("t1", "t2", "t3")]
    fifth = run.line("papers/t5", "share")[run.controlled]
    return {
        "total utility at the end": float(np.nanmean(run.utility[run.last_minutes])),
        "median of t4": median("t4"),
        "lowest median of t1 to t3": min(medians),
        "highest median of t1 to t3": max(medians),
        "5th percentile of t5": float(np.nanpercentile(fifth, 5)),
    }


def cpu_spike(runs: Runs) -> Values:
    run = only_variant(runs)[HENGE]
    before = _between(run, 20_000, SPIKE_S)
    usual = float(run.utility[before].mean())
    first, after = _between(run, run.policy_from_s, SPIKE_S), run.times_s > SPIKE_S
    reduced = {action.job for action in run.changes(REDUCTION) if action.time_s > SPIKE_S}
    return {
        "first converged by": stays_from(run.times_s[first], run.utility[first] >= 0.98 * usual),
        "recovered by": stays_from(run.times_s[after], run.utility[after] >= 0.98 * usual),
        "jobs reduced": float(len(reduced)),
    }


def stateful(runs: Runs) -> Values:
    run = only_variant(runs)[HENGE]
    steps = reconfigurations(run)
    values: Values = {}
    converged: dict[str, float | None] = {}
    for kind in ("stateful", "stateless"):
        jobs = [job for job in run.jobs if job.startswith(f"papers/{kind}")]
        met = [stays_from(run.times_s, _met(run, job)) for job in jobs]
        values[f"rounds, {kind}"] = float(np.mean([steps[job] for job in jobs]))
        # Who meets its intent before anybody may act need not converge.
        known = [max(0.0, at_s - run.policy_from_s) for at_s in met if at_s is not None]
        converged[kind] = float(np.mean(known)) if len(known) == len(jobs) else None
        values[f"convergence, {kind}"] = converged[kind]
    longer, shorter = converged["stateful"], converged["stateless"]
    values["longer with state"] = longer / shorter - 1 if longer and shorter else None
    return values


def more_jobs(runs: Runs) -> Values:
    run = only_variant(runs)[HENGE]

    def by(hour: int) -> float:
        settled = _between(run, hour * HOUR_S - END_S, hour * HOUR_S)
        there = int((run.starts_s < hour * HOUR_S - END_S).sum())
        return float(np.nanmean(run.utility[settled])) / there

    return {
        "average utility after the arrivals at 2, 4 and 6 h": float(np.mean([by(4), by(6), by(8)])),
        "average utility after the arrivals at 8 h": by(11),
    }


def more_machines(runs: Runs) -> Values:
    values: Values = {}
    for machines in (10, 20, 30, 40):
        run = henge_run(runs, f"{machines}x8")
        shares = [_at_end(run, job) for job in run.jobs]
        values[f"5th percentile of satisfaction, {machines} machines"] = float(
            np.percentile(shares, 5)
        )
    run = henge_run(runs, "10x8")
    meets = [_at_end(run, job) >= MET for job in run.jobs]
    values["jobs that meet their intents, 10 machines"] = float(np.mean(meets))
    values["median convergence, 10 machines"] = float(
        np.median([_highest_after(run, job) for job in run.jobs])
    )
    return values


def _highest_after(run: Run, job: str) -> float:
    """How long a job takes to its highest utility; all of the time if it never has any."""
    late = run.controlled
    utility = np.nan_to_num(run.line(job, "utility"))[late]
    worthless = utility.max() < NOTHING * run.maxima[run.jobs.index(job)]
    first = -1 if worthless else int(np.argmax(utility >= utility.max() * MET))
    return float(run.times_s[late][first] - run.policy_from_s)


def failure(runs: Runs) -> Values:
    run = only_variant(runs)[HENGE]
    times_s = [action.time_s for action in run.changes()]
    after = [at_s for at_s in times_s if at_s >= LOST_S[1]]
    return {
        "actions while numbers are missing": float(
            sum(LOST_S[0] <= at_s < LOST_S[1] for at_s in times_s)
        ),
        "first action after it": after[0] if after else None,
        "intents met at the end": float(sum(_at_end(run, job) >= MET for job in run.jobs)),
    }


def memory(runs: Runs) -> Values:
    run = only_variant(runs)[HENGE]
    used = run.memory[-60:]
    return {
        "total utility at the end": run.at_end * float(run.maxima.sum()),
        "reached by": stays_from(run.times_s, run.satisfaction >= MET),
        "mean use of memory": float(np.mean(used)),
    }


def reduction(runs: Runs) -> Values:
    """The share with which the jobs have the most utility over all runs."""
    figure = "the share that neither misses intents nor does too little"
    if not any(henge_run(runs, name).changes(REDUCTION) for name in runs):
        return {figure: NothingDecided("No run had a Reduction.")}
    worth: dict[float, float] = {}
    for name in runs:
        share = float(name.partition("%")[0]) / 100
        worth[share] = worth.get(share, 0.0) + henge_run(runs, name).average
    best = [share for share, value in worth.items() if value >= max(worth.values()) - 1e-3]
    if len(best) > 1:
        tied = listed([percent(share) for share in best])
        return {figure: NothingDecided(f"Utility is the same with {tied}.")}
    return {figure: best[0]}


MEASURES: Final[Mapping[str, Callable[[Runs], Values]]] = {
    "juice": juice,
    "initial-configuration": initial_configuration,
    "priorities": priorities,
    "hybrid": hybrid,
    "spikes": spikes,
    "diurnal": diurnal,
    "cost": cost,
    "production": production,
    "cpu-spike": cpu_spike,
    "stateful": stateful,
    "more-jobs": more_jobs,
    "more-machines": more_machines,
    "failure": failure,
    "memory": memory,
    "reduction": reduction,
}
