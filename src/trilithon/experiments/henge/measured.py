"""Owns our numbers for the figures that Henge's texts print: one function per experiment, from its runs."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from scipy import stats

from trilithon.experiments.runs import END_S, Bools, Floats, Run, Steering

# By variant, then by who steered.
Results = Mapping[str, Mapping[Steering, Run]]
Values = dict[str, float | None]
RECONFIGURATION: Final = "RECONFIGURATION"
REDUCTION: Final = "REDUCTION"
BLACKLISTED: Final = "BLACKLISTED"
# An intent counts as met from here on, as for the policy itself.
MET: Final = 0.995
NOTHING: Final = 1e-3
HOUR_S: Final = 3600.0
EARLY_S: Final = 1500.0
# Juice as an indicator: when the load trebles; and how many looks are a minute.
TREBLED_S: Final = 4000.0
MINUTE: Final = 6
SPIKE_S: Final = 21_800.0


def _henge(results: Results, variant: str) -> Run:
    return results[variant][Steering.HENGE]


def _only(results: Results) -> Mapping[Steering, Run]:
    (found,) = results.values()
    return found


def stays_from(times_s: Floats, holds: Bools) -> float | None:
    """The time from which on something holds to the end; None if it does not hold there."""
    if not len(holds) or not holds[-1]:
        return None
    broken = np.flatnonzero(~holds)
    first = int(broken[-1]) + 1 if len(broken) else 0
    return float(times_s[first])


def _met(run: Run, job: str) -> Bools:
    found: Bools = run.line(job, "share") >= MET
    return found


def all_met_from(run: Run) -> float | None:
    return stays_from(run.times_s, np.all([_met(run, job) for job in run.jobs], axis=0))


def _at_end(run: Run, job: str) -> float:
    return float(np.nanmean(run.line(job, "share")[run.last_minutes]))


def _steps(run: Run, *reasons: str) -> Counter[str]:
    return Counter(one.job or "" for one in run.acted(*(reasons or (RECONFIGURATION,))))


def _between(run: Run, start_s: float, end_s: float) -> Bools:
    found: Bools = (run.times_s > start_s) & (run.times_s <= end_s)
    return found


def _smooth(values: Floats) -> Floats:
    """The mean of a minute, of which each look is a sixth; what is missing in it is left out."""
    padded = np.concatenate([np.full(MINUTE - 1, np.nan), values])
    minutes = np.lib.stride_tricks.sliding_window_view(padded, MINUTE)
    known = ~np.isnan(minutes)
    found: Floats = np.nansum(minutes, axis=1) / np.where(
        known.any(axis=1), known.sum(axis=1), np.nan
    )
    return found


def juice(results: Results) -> Values:
    """Of single jobs, as in the report's figures: the first that is changed at all, and the first that is
    changed after the load has trebled. It is stable again when all jobs are.
    """
    run = _only(results)[Steering.HENGE]
    smooth = {job: _smooth(run.line(job, "juice")) for job in run.jobs}
    acted = run.acted(RECONFIGURATION)
    early = next((one for one in acted if one.time_s <= TREBLED_S), None)
    later = next((one for one in acted if one.time_s > TREBLED_S), None)
    after = run.times_s > TREBLED_S
    least = np.min([smooth[job] for job in run.jobs], axis=0)
    found: Values = dict.fromkeys(("juice when it has fallen", "juice has fallen"))
    if later is not None and later.job is not None:
        line = smooth[later.job]
        before = _between(run, TREBLED_S, later.time_s)
        fallen = run.times_s[after & (line < MET)]
        found["juice when it has fallen"] = float(line[before][-1])
        found["juice has fallen"] = float(fallen[0]) if len(fallen) else None
    found["stable again by"] = stays_from(run.times_s[after], least[after] >= MET)
    name = "stable after the first action by"
    found[name] = None
    if early is not None and early.job is not None:
        span = _between(run, run.from_s, TREBLED_S)
        found[name] = stays_from(run.times_s[span], smooth[early.job][span] >= MET)
    return found


def initial_configuration(results: Results) -> Values:
    def instances(variant: str) -> float:
        (counts,) = _henge(results, variant).last.values()
        return float(counts["third"])

    def rounds(variant: str) -> float:
        return float(sum(_steps(_henge(results, variant)).values()))

    def most(ms: int, factor: int) -> float:
        names = [
            name for name in results if name.startswith(f"{ms}ms-") and name.endswith(f"-{factor}x")
        ]
        return max(map(rounds, names))

    found: Values = {}
    for told, factor in (("", 1), (", twice the load", 2)):
        for ms in (70, 60):
            variant = f"{ms}ms-10-{factor}x"
            found[f"instances from 10, {ms} ms{told}"] = instances(variant)
            found[f"rounds from 10, {ms} ms{told}"] = rounds(variant)
    found["rounds at 50 ms, twice the load"] = most(50, 2)
    found["rounds at 60 ms, twice the load"] = most(60, 2)
    return found


def priorities(results: Results) -> Values:
    run = _only(results)[Steering.HENGE]
    met_s = all_met_from(run)
    return {
        "all intents met after": None if met_s is None else met_s - run.from_s,
        "Reconfigurations": float(sum(_steps(run).values())),
    }


def hybrid(results: Results) -> Values:
    run = _only(results)[Steering.HENGE]
    steps, acted = _steps(run), run.acted(RECONFIGURATION)
    return {
        "all intents met by": all_met_from(run),
        "first action at": acted[0].time_s if acted else None,
        "jobs that needed one Reconfiguration": float(sum(n == 1 for n in steps.values())),
        "Reconfigurations of the tenth": float(max(steps.values(), default=0)),
    }


def spikes(results: Results) -> Values:
    run = _only(results)[Steering.HENGE]
    return {"total utility during the spikes": float(run.utility[run.times_s > 3600].mean())}


def diurnal(results: Results) -> Values:
    ways = _only(results)
    run = ways[Steering.HENGE]
    found: Values = {}
    for name, steering in (
        ("Henge", Steering.HENGE),
        ("manual", Steering.MANUAL),
        ("uncontrolled", Steering.NOBODY),
    ):
        one = ways[steering]
        found[f"average satisfaction, {name}"] = one.average
        found[f"15th percentile, {name}"] = one.percentile(15)
        found[f"median, {name}"] = one.percentile(50)
        found[f"90th percentile, {name}"] = one.percentile(90)
    stood_h = sum(one.stood_s for one in run.acted()) / HOUR_S
    hour_15 = _between(run, 15 * 600 - 60, 15 * 600)
    found["share of the maximum by hour 15"] = float(run.satisfaction[hour_15].mean())
    found["time of actions over all jobs"] = stood_h
    found["the same, of all job time"] = stood_h / (len(run.jobs) * run.times_s[-1] / HOUR_S)
    found["longest convergence"] = _longest_convergence(run)
    return found


def _longest_convergence(run: Run) -> float | None:
    """From the first Reconfiguration of a job that misses its intent until it meets it, or to the end of the
    run if it never does.
    """
    longest = None
    for job in run.jobs:
        met = _met(run, job)
        acted = [one.time_s for one in run.acted(RECONFIGURATION) if one.job == job]
        done_s = -np.inf
        for at_s in acted:
            if at_s <= done_s:
                continue  # of the same search
            later = np.flatnonzero(met & (run.times_s > at_s))
            done_s = float(run.times_s[later[0] if len(later) else -1])
            longest = max(longest or 0.0, done_s - at_s)
    return longest


def cost(results: Results) -> Values:
    scarce = results["40%"]
    share = scarce[Steering.HENGE].at_end
    other = scarce[Steering.NOBODY].at_end
    return {
        "satisfaction at 60 %": _henge(results, "60%").at_end,
        "satisfaction at 40 %": share,
        "against uncontrolled at 40 %": share / other if other > 0 else None,
    }


def production(results: Results) -> Values:
    run = _only(results)[Steering.HENGE]

    def median(job: str) -> float:
        return float(np.median(np.nan_to_num(run.line(f"papers/{job}", "utility"))))

    medians = [median(job) for job in ("t1", "t2", "t3")]
    fifth = run.line("papers/t5", "share")[run.late]
    return {
        "total utility at the end": float(np.nanmean(run.utility[run.last_minutes])),
        "median of t4": median("t4"),
        "lowest median of t1 to t3": min(medians),
        "highest median of t1 to t3": max(medians),
        "5th percentile of t5": float(np.nanpercentile(fifth, 5)),
    }


def cpu_spike(results: Results) -> Values:
    run = _only(results)[Steering.HENGE]
    before = _between(run, 20_000, SPIKE_S)
    usual = float(run.utility[before].mean())
    first, after = _between(run, run.from_s, SPIKE_S), run.times_s > SPIKE_S
    reduced = {one.job for one in run.acted(REDUCTION) if one.time_s > SPIKE_S}
    return {
        "first converged by": stays_from(run.times_s[first], run.utility[first] >= 0.98 * usual),
        "recovered by": stays_from(run.times_s[after], run.utility[after] >= 0.98 * usual),
        "jobs reduced": float(len(reduced)),
    }


def stateful(results: Results) -> Values:
    run = _only(results)[Steering.HENGE]
    steps = _steps(run)
    found: Values = {}
    for kind in ("stateful", "stateless"):
        jobs = [job for job in run.jobs if job.startswith(f"papers/{kind}")]
        met = [stays_from(run.times_s, _met(run, job)) for job in jobs]
        found[f"rounds, {kind}"] = float(np.mean([steps[job] for job in jobs]))
        # Who meets its intent before anybody may act need not converge.
        known = [max(0.0, at_s - run.from_s) for at_s in met if at_s is not None]
        found[f"convergence, {kind}"] = float(np.mean(known)) if len(known) == len(jobs) else None
    longer, shorter = found["convergence, stateful"], found["convergence, stateless"]
    found["longer with state"] = longer / shorter - 1 if longer and shorter else None
    return found


def more_jobs(results: Results) -> Values:
    run = _only(results)[Steering.HENGE]

    def by(hour: int) -> float:
        settled = _between(run, hour * HOUR_S - END_S, hour * HOUR_S)
        there = int((run.starts_s < hour * HOUR_S - END_S).sum())
        return float(np.nanmean(run.utility[settled])) / there

    return {
        "average utility after the arrivals at 2, 4 and 6 h": float(np.mean([by(4), by(6), by(8)])),
        "average utility after the arrivals at 8 h": by(11),
    }


def more_machines(results: Results) -> Values:
    found: Values = {}
    for machines in (10, 20, 30, 40):
        run = _henge(results, f"{machines}x8")
        shares = [_at_end(run, job) for job in run.jobs]
        found[f"5th percentile of satisfaction, {machines} machines"] = float(
            np.percentile(shares, 5)
        )
    run = _henge(results, "10x8")
    meets = [_at_end(run, job) >= MET for job in run.jobs]
    found["jobs that meet their intents, 10 machines"] = float(np.mean(meets))
    found["median convergence, 10 machines"] = float(
        np.median([_highest_after(run, job) for job in run.jobs])
    )
    return found


def _highest_after(run: Run, job: str) -> float:
    """How long it takes a job to come to its highest utility; all of the time if it never has any."""
    late = run.late
    utility = np.nan_to_num(run.line(job, "utility"))[late]
    worthless = utility.max() < NOTHING * run.maxima[run.jobs.index(job)]
    first = -1 if worthless else int(np.argmax(utility >= utility.max() * MET))
    return float(run.times_s[late][first] - run.from_s)


def failure(results: Results) -> Values:
    run = _only(results)[Steering.HENGE]
    acted = [one.time_s for one in run.acted()]
    after = [at_s for at_s in acted if at_s >= 1380]
    return {
        "actions while numbers are missing": float(sum(1020 <= at_s < 1380 for at_s in acted)),
        "first action after it": after[0] if after else None,
        "intents met at the end": float(sum(_at_end(run, job) >= MET for job in run.jobs)),
    }


def memory(results: Results) -> Values:
    run = _only(results)[Steering.HENGE]
    used = run.memory[-60:]
    return {
        "total utility at the end": run.at_end * float(run.maxima.sum()),
        "reached by": stays_from(run.times_s, run.satisfaction >= MET),
        "mean use of memory": float(np.mean(used)),
    }


def reduction(results: Results) -> Values:
    """The share with which the jobs have the most utility, over all runs; none if they do not differ."""
    worth: dict[float, float] = {}
    for name in results:
        share = float(name.partition("%")[0]) / 100
        worth[share] = worth.get(share, 0.0) + _henge(results, name).average
    best = [share for share, value in worth.items() if value >= max(worth.values()) - 1e-3]
    name = "the share that neither misses intents nor does too little"
    return {name: best[0] if len(best) == 1 else None}


MEASURED: Final[Mapping[str, Callable[[Results], Values]]] = {
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


def measured(experiment: str, results: Results) -> Values:
    """Our numbers for the figures of an experiment, as plain ones."""
    found = MEASURED[experiment](results)
    return {what: None if value is None else float(value) for what, value in found.items()}


def _juice_and_queue(results: Results) -> str:
    """Figure 9 of the report: the two move against each other."""
    run = _only(results)[Steering.HENGE]
    job = next(iter(_steps(run)), run.jobs[0])
    early = run.times_s <= EARLY_S
    values = (run.line(job, "juice")[early], run.line(job, "queue")[early])
    found = float(stats.spearmanr(*values, nan_policy="omit").statistic)
    moves = (
        "the one falls as the other grows, as"
        if found < 0
        else "they do not move against each other, unlike"
    )
    return (
        f"Up to {EARLY_S:g} s, juice and queue length of {job} have a rank correlation of "
        f"{found:.2f}: {moves} in the report's figure 9."
    )


def _blacklisted(results: Results) -> str:
    """What the report says of promises that cannot be kept (7.2.1)."""

    def first_s(ms: int) -> float:
        times = [
            one.time_s
            for name in results
            if name.startswith(f"{ms}ms-") and name.endswith("-2x")
            for one in _henge(results, name).acts
            if one.reason == BLACKLISTED
        ]
        return min(times, default=np.inf)

    def steps(ms: int) -> int:
        names = [name for name in results if name.startswith(f"{ms}ms-") and name.endswith("-2x")]
        return sum(sum(_steps(_henge(results, name)).values()) for name in names)

    strict, lax = first_s(40), first_s(50)
    when = "earlier than" if strict < lax else "as early as" if strict == lax else "later than"
    if np.isinf(min(strict, lax)):
        told = "neither a promise of 40 ms nor one of 50 ms is ever blacklisted"
    else:
        told = f"the promise of 40 ms is blacklisted {when} that of 50 ms"
    untouched = sum(not _henge(results, name).acted() for name in results)
    return (
        f"In {untouched} of {len(results)} runs the intent is met from the beginning, with what was chosen for a "
        f"record's cost. With twice the load {told}; 40 ms takes {steps(40)} Reconfigurations in five runs, 50 ms {steps(50)} "
        "(in the report, 40 ms is blacklisted earlier and takes fewer)."
    )


def _ended(results: Results) -> str:
    """In the paper the production cluster ends by a Reversion."""
    run = _only(results)[Steering.HENGE]
    kinds = Counter(one.reason for one in run.acted())
    last = run.acted()[-1].reason if run.acted() else "nothing"
    told = ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))
    by_hand = _only(results)[Steering.MANUAL].at_end
    return (
        f"Henge's steps: {told or 'none'}. The last is {last}; in the paper, a Reversion. The paper's cluster cannot meet "
        f"all intents; at the loads chosen here instances set by hand come to {100 * by_hand:.1f} % at the end."
    )


def _alone(results: Results) -> str:
    """Whether a cluster of its own is as large as was chosen."""
    reached = [_henge(results, f"alone on {cores}").at_end for cores in (1, 2)]
    return (
        f"In a cluster of its own a job comes to {100 * reached[0]:.1f} % of its utility on one core, and to "
        f"{100 * reached[1]:.1f} % on two, which is what `own_cores` was chosen by."
    )


# Findings without a number of the paper's.
NOTES: Final[Mapping[str, Callable[[Results], str]]] = {
    "juice": _juice_and_queue,
    "initial-configuration": _blacklisted,
    "cost": _alone,
    "production": _ended,
}
