"""Lists the experiments of the latency paper with the figures that its text prints."""

from typing import Final

from trilithon.experiments.definition import (
    Experiment,
    FigureScope,
    Variant,
    at_least,
    at_most,
    neither,
)
from trilithon.experiments.latency.set_ups import STEP_S, TWEETS_S
from trilithon.experiments.strategies import UNCONTROLLED

LATENCY: Final = "latency"
THRESHOLD: Final = "threshold"
PROMISES_MS: Final = (20, 30, 40, 50, 100)
_UNELASTIC: Final = FigureScope(variants=("unelastic",), strategy=UNCONTROLLED.name)
_20_MS: Final = FigureScope(variants=("20 ms",))


def _promised(ms: int) -> FigureScope:
    return FigureScope(variants=(f"{ms} ms",))


def _static(variant: str) -> FigureScope:
    return FigureScope(variants=(variant,), strategy=UNCONTROLLED.name)


PRIMETESTER: Final = Experiment(
    name="primetester",
    about="PrimeTester through all phases with 1 to 520 testers, under promises of 20 to 100 ms, "
    "beside 175 testers that never change and send full 16-KiB buffers",
    source="section V-A, figure 6",
    duration_s=12 * STEP_S,
    variants=(
        *(
            Variant(f"{ms} ms", (), strategies=(LATENCY, THRESHOLD) if ms == 20 else (LATENCY,))
            for ms in PROMISES_MS
        ),
        Variant("unelastic", (), strategies=(UNCONTROLLED.name,)),
    ),
    figures=(
        at_least("intervals kept, 20 ms", 0.91, "ratio", "V-A", headline=True, scope=_20_MS),
        neither("testers at the end of the warm-up", 36, "instances", "V-A", scope=_20_MS),
        at_most("95th percentile, 20 ms", 30, "ms", "V-A", headline=True, scope=_20_MS),
        neither(
            "task-hours at 20 ms, of the unelastic ones",
            1.0,
            "ratio",
            "V-A (“almost equal”)",
            headline=True,
            scope=_20_MS,
        ),
        *(
            at_most(
                f"task-hours, {ms} ms",
                hours,
                "task-hours",
                "V-A",
                headline=True,
                scope=_promised(ms),
            )
            for ms, hours in ((30, 46.4), (40, 44.3), (50, 41.8), (100, 37.6))
        ),
        neither("lowest mean latency, unelastic", 348, "ms", "V-A", scope=_UNELASTIC),
        neither("lowest 95th percentile, unelastic", 564, "ms", "V-A", scope=_UNELASTIC),
    ),
    chosen=(
        "The peak rate and the number of sinks: chosen.yaml says from what.",
        "The run begins with 175 testers.",
    ),
    policy_from_s=0.0,
    plotted=("20 ms", "unelastic"),
)
BATCHING: Final = Experiment(
    name="batching",
    about="PrimeTester with 50 sources, 200 testers and 50 sinks that never change: records are "
    "shipped one by one, batched as 20 ms allow, or in full 16-KiB buffers",
    source="section III, figure 3",
    duration_s=9 * STEP_S,
    variants=(
        Variant("instant", (), strategies=(UNCONTROLLED.name,)),
        Variant("adaptive", (), strategies=(LATENCY,)),
        Variant("16 KiB", (), strategies=(UNCONTROLLED.name,)),
    ),
    figures=(
        neither("peak throughput, instant", 40_000, "records/s", "III-C", scope=_static("instant")),
        neither(
            "peak throughput, adaptive",
            52_000,
            "records/s",
            "III-C",
            headline=True,
            scope=FigureScope(variants=("adaptive",)),
        ),
        neither("peak throughput, 16 KiB", 63_000, "records/s", "III-C", scope=_static("16 KiB")),
        neither("steady state lost, instant", 180, "s", "III-C", scope=_static("instant")),
        neither(
            "steady state lost, adaptive",
            300,
            "s",
            "III-C",
            headline=True,
            scope=FigureScope(variants=("adaptive",)),
        ),
        neither("steady state lost, 16 KiB", 360, "s", "III-C", scope=_static("16 KiB")),
        neither(
            "20 ms lost, adaptive", 240, "s", "III-C", scope=FigureScope(variants=("adaptive",))
        ),
        at_most("latency in the warm-up, instant", 2, "ms", "III-C", scope=_static("instant")),
        neither("latency in the warm-up, 16 KiB", 3000, "ms", "III-C", scope=_static("16 KiB")),
    ),
    chosen=(
        (
            "What a shipment costs is from the peaks of the instant and the 16-KiB run, and how "
            "many records fill a buffer from the latter's warm-up: these are no predictions. How "
            "adaptive batching does is one."
        ),
    ),
    policy_from_s=0.0,
    plotted=("instant", "adaptive", "16 KiB"),
)
TWITTER: Final = Experiment(
    name="twittersentiment",
    about="TwitterSentiment for 100 minutes: two promises that overlap in one operator, lists of "
    "hot topics in 200-ms windows that are broadcast, and a burst about one topic",
    source="section V-B, figure 8",
    duration_s=TWEETS_S,
    variants=(Variant("two weeks", (), strategies=(LATENCY,)),),
    figures=(
        at_least("intervals kept, 215 ms", 0.93, "ratio", "V-B", headline=True),
        at_least("intervals kept, 30 ms", 0.96, "ratio", "V-B", headline=True),
        neither("instances of sentiment that the burst adds", 28, "instances", "V-B"),
        at_most("95th percentile of the 30-ms path, outside the burst", 25, "ms", "V-B"),
    ),
    chosen=(
        (
            "Rates but for the peak, service times and selectivity of operators, and how much of "
            "the burst is about a hot topic: the data set is not public."
        ),
    ),
    policy_from_s=0.0,
    plotted=("two weeks",),
)
EXPERIMENTS: Final = (PRIMETESTER, BATCHING, TWITTER)
