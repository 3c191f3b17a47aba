"""Says more about a figure of the latency paper that is not as in the paper, where numbers show it.

One sentence or two each, made of the results and the chosen numbers; None where they do not show
what it would say. Other figures get the sentence that all papers share.
"""

from collections.abc import Callable
from typing import Final

from trilithon.experiments.experiment_result import ComparedFigure, ExperimentResult
from trilithon.experiments.latency.set_ups import MOTIVATION_TESTERS, motivation
from trilithon.experiments.markdown import number, stated
from trilithon.policies.latency.latency_parameters import LatencyParameters
from trilithon.policies.latency.output_batching import FILLED
from trilithon.scenarios.chosen import load_chosen, nephele_character

Reason = Callable[[ExperimentResult], str | None]
# Peaks that differ by less are as high.
NEARLY: Final = 0.05
# Over the edge into the testers, and over the one out of them.
HOPS: Final = 2
_BURST_ADDS: Final = "instances of sentiment that the burst adds"


def _tester_ms() -> float:
    """What a record takes of a tester, without shipping it."""
    service_ms = load_chosen().common.profiles["primetester"]["tester"].service_ms
    assert service_ms is not None  # noqa: S101 - chosen.yaml has it
    return service_ms


def edge_batching_ms() -> float:
    """How long each edge gathers records in section III while the promise can be kept, by the
    formula of `policies/latency/output_batching.py`.
    """
    transport_ms = HOPS * 1000 * nephele_character(load_chosen()).transit_s
    left_ms = FILLED * motivation().promise_ms - _tester_ms()
    return ((1 - LatencyParameters().waiting_share) * left_ms - transport_ms) / HOPS


def _as_high_peaks(result: ExperimentResult) -> tuple[float, float] | None:
    """The peaks of adaptive batching and of full buffers, if they are nearly the same."""
    adaptive, full = (result.ours(f"peak throughput, {name}") for name in ("adaptive", "16 KiB"))
    if adaptive is None or full is None or abs(adaptive - full) > NEARLY * full:
        return None
    return adaptive, full


def _as_high_as_full_buffers(result: ExperimentResult) -> str | None:
    peaks = _as_high_peaks(result)
    if peaks is None:
        return None
    adaptive, full = peaks
    numbers, gathered_ms = load_chosen().common.nephele, edge_batching_ms()
    # The first begins the time, and others come while it passes.
    gathered = 1 + adaptive / MOTIVATION_TESTERS * gathered_ms / 1000
    in_buffer = 1024 * numbers.buffer_kib / numbers.record_bytes
    return (
        "One shipment takes the records of all receivers here ([decision "
        "16](../adr/0016-shipments-cost-their-sender.md)); the paper's buffers are per channel. In "
        f"the {gathered_ms:.1f} ms that the promise leaves an edge, a tester gathers "
        f"{gathered:.1f} records at the peak, about as many as the {in_buffer:.0f} of a full "
        f"buffer: adaptive batching peaks as high as full buffers do "
        f"({number(full, 'records/s')})."
    )


def _lost_later(result: ExperimentResult) -> str | None:
    peaks = _as_high_peaks(result)
    if peaks is None:
        return None
    adaptive, full = (number(peak, "records/s") for peak in peaks)
    return (
        f"Adaptive batching peaks at {adaptive} here, as full buffers do ({full}), for the reason "
        "given for its peak: so it carries more load before."
    )


def _before_anything_waits(_: ExperimentResult) -> str:
    character = nephele_character(load_chosen())
    work_ms, ship_ms, hop_ms = (_tester_ms(), 1000 * character.ship_s, 1000 * character.transit_s)
    return (
        f"Before anything waits, a record takes {work_ms + ship_ms + HOPS * hop_ms:.1f} ms: by the "
        f"chosen numbers a tester works {work_ms:g} ms and ships for {ship_ms:g} ms, and each of "
        f"the {HOPS} hops takes {hop_ms:g} ms."
    )


def _compared(result: ExperimentResult, figure: str) -> ComparedFigure:
    return next(each for each in result.figures if each.figure.name == figure)


def _interval_contains_the_papers(result: ExperimentResult) -> str | None:
    burst = _compared(result, _BURST_ADDS)
    if burst.ours is None or burst.half_width is None:
        return None
    low, high = burst.ours - burst.half_width, burst.ours + burst.half_width
    if not low <= burst.figure.value <= high:
        return None
    return (
        f"The 95 % interval over {len(burst.each)} seeds, {low:.1f} to {high:.1f} instances, "
        f"contains the paper's {stated(burst.figure)}."
    )


def _longer_than_the_promised_path(_: ExperimentResult) -> str:
    return (
        "It is measured from when a tweet comes to when the sink writes it. That is longer than "
        "the path of the promise: waiting to be read, the work of `track` and the way to the sink "
        "are in it, too."
    )


REASONS: Final[dict[tuple[str, str], Reason]] = {
    ("batching", "peak throughput, adaptive"): _as_high_as_full_buffers,
    ("batching", "steady state lost, adaptive"): _lost_later,
    ("batching", "20 ms lost, adaptive"): _lost_later,
    ("batching", "latency in the warm-up, instant"): _before_anything_waits,
    ("twittersentiment", _BURST_ADDS): _interval_contains_the_papers,
    (
        "twittersentiment",
        "95th percentile of the 30-ms path, outside the burst",
    ): _longer_than_the_promised_path,
}
