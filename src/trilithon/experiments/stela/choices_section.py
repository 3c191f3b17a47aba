"""Tells where strategies rank among all choices, and what the share of CPU in the work decides."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trilithon.experiments.markdown import listed, number, percent, table
from trilithon.experiments.stela.catalogue import (
    AGAINST_DEFAULT,
    DEFAULT,
    DEFAULT_GAIN,
    EXPERIMENTS,
    GAIN,
    GROUP_1,
    GROUP_2,
    LEAST_LINK,
    LEFT,
    LEFT_BY_GROUP_1,
    LEFT_BY_GROUP_2,
    PRINTED,
    SCALE_IN,
    STELA,
)
from trilithon.experiments.stela.every_choice import DIVIDING, SAME, better

# The chance that four random machines of eight have the two best: (6 over 2) / (8 over 4).
LUCK: Final = 15 / 70


def section(found: Sequence[Mapping[str, Any]]) -> str:
    divided = [one for one in found if "in_turn" not in one]
    removed = [one for one in found if "in_turn" in one]
    parts = [
        "## Every choice\n",
        (
            "Every choice of a scaling, run by itself from the same placement (`trilithon "
            "experiment stela choices`): all divisions of the new machine's instances among "
            "operators that have tasks for them, and all groups of machines. "
            f"Throughputs within {100 * SAME:g} % have the same rank.\n"
        ),
    ]
    if divided:
        parts += [_divisions(divided), _cpu_shares(divided)]
    parts += [_groups(one) for one in removed]
    return "\n".join(parts)


def _divisions(found: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for one in found:
        choices, chosen, before = one["choices"], one["chosen"], one["before"]
        ranks = [better(choices, chosen[name]) + 1 for name in DIVIDING]
        rows.append(
            (
                one["experiment"],
                str(len(choices)),
                percent(choices[0] / before - 1),
                *(
                    f"{percent(chosen[name] / before - 1)} ({rank})"
                    for name, rank in zip(DIVIDING, ranks, strict=True)
                ),
                _printed_gain(one["experiment"]),
            )
        )
    labels = [_label(name) for name in DIVIDING]
    heads = ("gain (rank)", "divisions", "best", *labels, "the paper's Stela")
    beyond = [one["experiment"] for one in found if _beyond(one)]
    sentence = (
        f"No division gains what the paper prints for {listed(beyond)}: there the figure does not "
        "judge Stela's choice.\n"
        if beyond
        else ""
    )
    return "\n".join([table(heads, rows), sentence])


def _label(strategy: str) -> str:
    return strategy.capitalize() if strategy == STELA else strategy


def _gain(experiment: str) -> float | None:
    """What the paper prints of Stela's gain over the throughput before: as such, or over a default
    that gains nothing.
    """
    (described,) = (one for one in EXPERIMENTS if one.name == experiment)
    figures = {figure.name: figure.value for figure in described.figures if not figure.words}
    if GAIN in figures:
        return figures[GAIN]
    return figures[AGAINST_DEFAULT] if figures.get(DEFAULT_GAIN) == 0 else None


def _printed_gain(experiment: str) -> str:
    return number(_gain(experiment), "ratio")


def _beyond(one: Mapping[str, Any]) -> bool:
    gain = _gain(one["experiment"])
    return gain is not None and gain > one["choices"][0] / one["before"] - 1


def _cpu_shares(found: Sequence[Mapping[str, Any]]) -> str:
    """Gains by the share of CPU: a row per strategy, a column per job, a number per share."""
    shares = [row["cpu_share"] for row in found[0]["by_cpu_share"]]

    def cell(one: Mapping[str, Any], name: str) -> str:
        return " / ".join(f"{100 * row[name]:.1f}" for row in one["by_cpu_share"])

    names = ("best", STELA, DEFAULT, LEAST_LINK)
    rows = [(_label(name), *(cell(one, name) for one in found)) for name in names]
    missed = [one["experiment"] for one in found if better(one["choices"], one["chosen"][STELA])]
    least = [
        one["experiment"]
        for one in found
        if one["experiment"] in missed
        and not better([1 + one["by_cpu_share"][0]["best"]], 1 + one["by_cpu_share"][0][STELA])
    ]
    sentence = f"A better division than Stela's exists in {listed(missed)}." if missed else ""
    if missed and missed == least:
        sentence += (
            f" With {100 * shares[0]:.0f} % CPU there is none: the projection of a scale-out does "
            "not know how full the new machine gets."
        )
    percents = listed([f"{100 * share:g}" for share in shares])
    return "\n".join(
        [
            f"{sentence}\n" if sentence else "",
            (
                f"Gains in % with {percents} % of the work as CPU. That share is chosen "
                "(`cpu_share`; PageLoad's join has its own), and decides what moving instances "
                "gains: fewer of them share a core.\n"
            ),
            table(("", *(one["experiment"] for one in found)), rows),
        ]
    )


def _groups(one: Mapping[str, Any]) -> str:
    choices, in_turn, chosen = one["choices"], one["in_turn"], one["chosen"]
    count, before = len(choices), one["before"]
    best, worst = max(choices[0], in_turn[0]), min(choices[-1], in_turn[-1])
    lucky = sum(choice >= chosen[STELA] * (1 - SAME) for choice in in_turn)
    figures = {figure.name: figure.value for figure in SCALE_IN.figures}
    printed = [figures[LEFT], figures[LEFT_BY_GROUP_1], figures[LEFT_BY_GROUP_2]]
    outside = [percent(share) for share in printed if not worst <= share * before <= best]
    beyond = f": no choice leaves the paper's {listed(outside)}" if outside else ""
    emptied, highest = one["emptied"], max(one["etp_sums"])
    sums = f"at most {highest:.2g}" if highest else "0"
    ranks = {
        STELA: better(choices, chosen[STELA]) + 1,
        PRINTED: better(choices, chosen[PRINTED]) + 1,
        **{name: better(in_turn, chosen[name]) + 1 for name in (GROUP_1, GROUP_2)},
    }
    return (
        f"{one['experiment'].capitalize()}: of all {count} groups of machines Stela's is number "
        f"{ranks[STELA]} if instances move as Stela moves them. If they move in turn, random group "
        f"1 is number {ranks[GROUP_1]} and group 2 number {ranks[GROUP_2]}, and {lucky} of the "
        f"{count} groups are as good as Stela's ({percent(lucky / count)}; the paper gives a "
        f"random group a chance of {percent(LUCK)}). No group keeps more than "
        f"{percent(best / before)} of the throughput, and the worst keeps {percent(worst / before)}"
        f"{beyond}.\n\n"
        f"ETPSum alone chooses number {ranks[PRINTED]}. It empties the machines of "
        f"{listed(emptied[PRINTED])}, whose ETPSums are {sums}. These operators go on taking all "
        "that sources give, more than the job can use, and then share cores with those that limit "
        "it. Stela empties the machines of "
        f"{listed(emptied[STELA])}: its projection knows that machines get fuller.\n"
    )
