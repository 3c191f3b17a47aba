"""Owns the page of Henge's results: ours beside the paper's, why where we are worse, what no choice can turn."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from trilithon.experiments.henge.catalogue import EXPERIMENTS
from trilithon.experiments.henge.mixes import FIRST, TRIED, Ranking
from trilithon.experiments.henge.moved import WAYS, Moved
from trilithon.experiments.henge.reasons import ON_SPARK, REASONS
from trilithon.experiments.henge.results import Whole
from trilithon.experiments.henge.spark_diurnal import HOURS, LENGTH_S, SPARE, WARM_S, Result
from trilithon.experiments.henge.suite import Beside, Outcome, Summary
from trilithon.experiments.runs import MOST_TRIED, Steering
from trilithon.experiments.tenants import TENANTS, slots

COMMAND: Final = "trilithon experiment henge"
# An hour of the traces in which more than chance was missed.
LOW: Final = 0.95
_UNITS: Final = {"s": " s", "h": " h", "ratio": "", "times": " ×"}
HEAD: Final = f"""# Henge's experiments

`{COMMAND} all --into docs/results/henge.md` writes this page; `{COMMAND} NAME` runs one experiment and prints
its part; with `--into` it takes the place of what stood here. The numbers are in `henge.json` beside it, and
`{COMMAND} page --into docs/results/henge.md` writes the page from them. All but [the last part](#on-spark) is
simulated: the papers' jobs on the engine `storm`, as flows, in steps of a second
([the simulated cluster](../concepts/simulated.md)). Jobs, intents, priorities, loads and faults are the paper's
(SoCC'18, and the report before it); Henge runs with the paper's parameters, equation 4 stands alone, the guard
lets everything through, and nothing acts for the first 900 s. What the texts leave open stands in one file for
all experiments, `src/trilithon/scenarios/chosen.yaml`. Rates and service times were not changed after figures were
compared; what becomes of records that wait when a job is changed was, once, and for all experiments
([why](../adr/0011-the-papers-experiments.md)).

Any absolute figure can be had by choosing service times. So the numbers beside the paper's tell whether the
same things happen, not who is faster; [what no choice can turn](#what-no-choice-can-turn) tells more.

Four ways of running are compared. **Henge** is the policy. **Uncontrolled** leaves every job as it began.
**Manual** begins with the instances that somebody would give by hand so that all intents are met at median load:
from one each, the busiest operator of a job that misses its intent gets more until none does. **Best static**
begins with the best allocation that a search finds for the whole run, which knows all of it in advance: a hill
climb over all operators, from the manual one and from one for the highest load, in which jobs that are alike have the
same numbers; and where that does not meet all intents, another from the better of that and what Henge came to, in which
they may differ. A climb tries at most {MOST_TRIED} allocations, so the best that there is may be better. Satisfaction is the share of
the maximum utility that is reached.
"""


def page(whole: Whole) -> str:
    parts = [HEAD, *(_experiment(one) for one in whole.outcomes)]
    if whole.ranking is not None or whole.moved:
        parts.append("## What no choice can turn\n")
    if whole.ranking is not None:
        parts.append(_ranking(whole.ranking))
    if whole.moved:
        parts.append(_moved(whole.moved, whole.unmoved))
    if whole.spark:
        parts.append(_spark(whole.spark))
    return "\n".join(parts)


def number(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "ratio":
        return f"{100 * value:.1f} %" if value >= 0.001 or value == 0 else f"{100 * value:.2g} %"
    digits = 0 if abs(value) >= 100 or value == round(value) else 1
    return f"{value:,.{digits}f}{_UNITS.get(unit, ' ' + unit)}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _experiment(found: Outcome) -> str:
    one = found.experiment
    chosen = "".join(f"; {what}" for what in one.chosen).removeprefix("; ")
    parts = [
        f"## {one.name}\n",
        f"{one.about[0].upper()}{one.about[1:]} ({one.source}). Chosen: {chosen or 'nothing'}.\n",
        _table(
            ("", "paper", "here", ""),
            [
                (
                    beside.figure.what,
                    number(beside.figure.value, beside.figure.unit),
                    number(beside.ours, beside.figure.unit),
                    verdict(beside),
                )
                for beside in found.figures
            ],
        ),
    ]
    if found.note:
        parts.append(f"{found.note}\n")
    why = [reason for beside in found.figures if (reason := why_worse(one.name, beside))]
    parts += [f"- {reason}" for reason in dict.fromkeys(why)]
    if why:
        parts.append("")
    parts.append(_ways(found.ways))
    return "\n".join(parts)


def verdict(beside: Beside) -> str:
    if beside.figure.apart:
        return "not comparable"
    if beside.worse:
        return "differs" if beside.figure.at_least is None else "worse"
    return ""


def why_worse(experiment: str, beside: Beside) -> str | None:
    """Why we are worse, in a sentence; or why there is no number, or none to compare with."""
    what = beside.figure.what
    if beside.figure.apart:
        return f"{what[0].upper()}{what[1:]}: {beside.figure.apart}."
    if beside.worse or beside.ours is None:
        return REASONS.get((experiment, what))
    return None


def _ways(ways: Mapping[str, Mapping[Steering, Summary]]) -> str:
    heads = ("satisfaction, mean / at the end", *(str(s) for s in Steering), "Henge's actions")

    def cell(summary: Summary) -> str:
        return f"{100 * summary.average:.1f} / {100 * summary.at_end:.1f} %"

    rows = [
        (name, *(cell(found[s]) for s in Steering), str(found[Steering.HENGE].actions))
        for name, found in ways.items()
    ]
    return _table(heads, rows)


def _ranking(found: Ranking) -> str:
    rows = [
        (
            str(s),
            f"{100 * found.mean[s]:.1f} %",
            f"{100 * found.tenth[s]:.1f} %",
            f"{found.rank[s]:.2f}",
        )
        for s in Steering
    ]
    pairs = [
        (str(other), str(found.better[Steering.HENGE, other]), str(found.same[Steering.HENGE, other]),
         str(found.better[other, Steering.HENGE]))
        for other in Steering
        if other is not Steering.HENGE
    ]  # fmt: skip
    return "\n".join(
        [
            "### Random mixes\n",
            (
                f"{found.mixes} mixes of three to ten jobs, drawn from seeds {FIRST} to {FIRST + found.mixes - 1} "
                "that were not looked at while anything was developed: shapes, intents, priorities, loads over an "
                f"hour and a half, and clusters from ample to too small. The search tries {TRIED} allocations of each, in one climb. "
                "Mean satisfaction while Henge may act, the tenth percentile over the mixes, and the mean rank "
                f"(`{COMMAND} mixes`):\n"
            ),
            _table(("", "satisfaction", "10th percentile", "rank"), rows),
            "Henge against the others, in how many mixes (less than half a percent apart is the same):\n",
            _table(("", "Henge better", "the same", "Henge worse"), pairs),
        ]
    )


def _moved(found: Sequence[Moved], unmoved: Sequence[str]) -> str:
    return "\n".join(
        [
            "### Every chosen number, half and half as much again\n",
            (
                "Mean satisfaction of Henge / uncontrolled / manual in a run in which the number can play a part, and in "
                f"the one of five jobs that nearly fill their machines (`{COMMAND} chosen`). The first row of a run is with everything as chosen; of a word, the other ones "
                "are tried; `policy.` are the parameters of our own in Henge.\n"
            ),
            _table(("run", "number", "× 0.5", "× 1.5"), _moved_rows(found)),
            _changes(found),
            (
                "The paper's figures in those runs that are all of their experiments: as chosen, and the lowest and "
                "the highest over all moves in that run.\n"
            ),
            _table(("run", "figure", "paper", "as chosen", "lowest", "highest"), _spans(found)),
            (
                "Not moved, since no run of these depends on it, or because it is 0 and half of that is the same: "
                f"{', '.join(f'`{path}`' for path in dict.fromkeys(map(_family, unmoved)))}.\n"
            ),
        ]
    )


def _spark(found: Sequence[Result]) -> str:
    jobs = [(tenant.job.id, tenant.priority) for tenant in TENANTS]
    rows = [
        (
            one.policy,
            number(one.satisfaction, "ratio"),
            number(one.worst_tenth, "ratio"),
            str(one.actions),
            str(sum(share < LOW for share in one.by_hour)),
            *(number(one.by_job[job], "ratio") for job, _ in jobs),
        )
        for one in found
    ]
    return "\n".join(
        [
            "## On Spark\n",
            (
                f"Two days of two traces in {LENGTH_S / 60:.0f} minutes, an hour in {LENGTH_S / HOURS:.0f} s, on "
                "Spark's real-time mode with a Kafka broker and two cores: the five jobs of `make demo`, neighbours "
                f"with different traces, on {slots() + SPARE} slots, of which they begin with {slots()}. A run for each "
                f"policy, from the start of Spark to its end; in the first {WARM_S:.0f} s nobody acts and nothing counts. "
                "Rounds, windows and waits of Henge are those of the demo, which are a few times shorter than the "
                "paper's; the rest is as it is. `threshold` raises the busiest operator of a job that misses a latency, and "
                "under `none` every job stays as it began. Satisfaction is the mean over the run, the worst tenth is "
                "what nine tenths of the time exceeded, and jobs are told with their priorities "
                f"(`{COMMAND} spark-diurnal --into docs/results/henge.md`, an hour on an otherwise idle machine; not "
                "part of `all`):\n"
            ),
            _table(
                (
                    "",
                    "satisfaction",
                    "worst tenth",
                    "actions",
                    f"hours below {100 * LOW:.0f} %",
                    *(f"{job} ({priority:g})" for job, priority in jobs),
                ),
                rows,
            ),
            f"{ON_SPARK}\n",
        ]
    )


def _spans(found: Sequence[Moved]) -> Iterator[tuple[str, ...]]:
    """How far each figure goes; what never came about in some run is told."""
    for base in found:
        task = base.task
        if task.path is not None or not base.figures:
            continue
        moves = [
            one.figures
            for one in found
            if one.task.path is not None
            and (one.task.experiment, one.task.variant) == (task.experiment, task.variant)
        ]
        for figure in EXPERIMENTS[task.experiment].figures:
            values = [one[figure.what] for one in moves]
            known = [value for value in values if value is not None]
            never = f", none in {len(values) - len(known)}" if len(known) < len(values) else ""
            ends = [number(end(known), figure.unit) if known else "–" for end in (min, max)]
            yield (
                f"{task.experiment} {task.variant}",
                figure.what,
                number(figure.value, figure.unit),
                number(base.figures[figure.what], figure.unit),
                ends[0],
                ends[1] + never,
            )


def _family(path: str) -> str:
    """Many numbers of one kind as one: all of a machine's, or of a job's profiles."""
    top, *rest = path.split(".")
    if top in {"machine", "machines"}:
        return f"{top}.*"
    return f"{top}.{rest[0]}.*" if top == "profiles" else path


def _three(one: Moved | None) -> str:
    if one is None:
        return "the same"
    return " / ".join(f"{100 * one.satisfaction[way]:.1f}" for way in WAYS) + " %"


def _moved_rows(found: Sequence[Moved]) -> Iterator[tuple[str, str, str, str]]:
    by_key = {
        (one.task.experiment, one.task.variant, one.task.path, one.task.factor): one
        for one in found
    }
    seen = dict.fromkeys((o.task.experiment, o.task.variant, o.task.path) for o in found)
    order = sorted(seen, key=lambda key: ([*seen].index((*key[:2], None)), key[2] or ""))
    for experiment, variant, path in order:
        run = f"{experiment} {variant}"
        if path is None:
            yield run, "as chosen", _three(by_key[experiment, variant, None, 1.0]), ""
            continue
        if "=" in path:
            yield run, f"`{path}`", _three(by_key[experiment, variant, path, 1.0]), ""
            continue
        half, more = (by_key.get((experiment, variant, path, f)) for f in (0.5, 1.5))
        yield run, f"`{path}`", _three(half), _three(more)


def _changes(found: Sequence[Moved]) -> str:
    """How far Henge moved, and whether it stayed ahead of doing nothing."""
    base = {
        (one.task.experiment, one.task.variant): one.satisfaction
        for one in found
        if one.task.path is None
    }
    others = [one for one in found if one.task.path is not None]
    better = sum(
        one.satisfaction[Steering.HENGE] >= one.satisfaction[Steering.NOBODY] for one in others
    )
    moves = [
        abs(
            one.satisfaction[Steering.HENGE]
            - base[one.task.experiment, one.task.variant][Steering.HENGE]
        )
        for one in others
    ]
    small = sum(move <= 0.05 for move in moves)
    return (
        f"Of {len(others)} runs with a number moved, Henge is at least as good as uncontrolled in {better}, and "
        f"its satisfaction moves by at most five percentage points in {small}; the largest move is "
        f"{100 * max(moves, default=0.0):.1f} points.\n"
    )
