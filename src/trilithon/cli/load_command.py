"""Owns the command `load`: what it takes, and the shape that its options mean."""

from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trilithon.cli.kafka_address import kafka_address
from trilithon.cli.output import Format, Output, answer, number, plural, progress, table
from trilithon.cli.settings import read_settings, span
from trilithon.errors import BrokerUnavailable, InvalidLoad
from trilithon.workloads import ad_events, nexmark, shapes, trace
from trilithon.workloads.load_generator import LoadProgress, LoadSummary, RecordMaker, generate
from trilithon.workloads.records import LEAST_BYTES, SCHEMA, Records

PEAK = 3.0
PERIOD_S = 20.0
ROW_S = 600.0


class ShapeName(StrEnum):
    CONSTANT = "constant"
    STEP = "step"
    SPIKE = "spike"
    RAMP = "ramp"
    SINE = "sine"
    TRACE = "trace"


class EventsName(StrEnum):
    CLICKS = "clicks"
    NEXMARK = "nexmark"
    ADS = "ads"


def _above_zero(value: float | None) -> float | None:
    if value is not None and not 0 < value <= 1e7:
        raise typer.BadParameter("it must be above 0, and at most ten million.")
    return value


def load_command(
    topic: Annotated[
        str, typer.Option("--topic", help="The topic to write to; created if it does not exist.")
    ],
    rate: Annotated[
        float,
        typer.Option(
            "--rate",
            help="Records per second: the low of a shape, the mean of a trace.",
            callback=_above_zero,
        ),
    ],
    length_s: Annotated[
        float, typer.Option("--for", help="How long to generate load.", parser=span, metavar="SPAN")
    ] = "60s",  # type: ignore[assignment] # the parser makes a number of it
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", help="host:port of a Kafka; default: the running embedded broker."),
    ] = None,
    kafka_settings: Annotated[
        Path | None,
        typer.Option(
            "--kafka-settings", help="A file of key=value lines for the client: security and so on."
        ),
    ] = None,
    shape: Annotated[
        ShapeName, typer.Option("--shape", help="How the rate changes over time.")
    ] = ShapeName.CONSTANT,
    peak: Annotated[
        float | None,
        typer.Option(
            "--peak", help="The high of a shape; default: three times --rate.", callback=_above_zero
        ),
    ] = None,
    period_s: Annotated[
        float | None,
        typer.Option(
            "--period",
            help="Length of a shape's period (20s), or of a row of a trace (10m).",
            parser=span,
            metavar="SPAN",
        ),
    ] = None,
    trace_name: Annotated[
        str | None,
        typer.Option("--trace", help=f"A CSV file, or one of {', '.join(trace.names())}."),
    ] = None,
    events: Annotated[
        EventsName, typer.Option("--events", help="What the records are: see below.")
    ] = EventsName.CLICKS,
    keys: Annotated[
        int | None,
        typer.Option(
            "--keys", help="How many distinct users; default: 1000.", min=1, max=1_000_000
        ),
    ] = None,
    zipf: Annotated[
        float | None,
        typer.Option(
            "--zipf", help="Skew of the users: 0 is uniform, 1.1 is very skewed.", min=0, max=5
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            help="Partitions of a topic that is created; default: 4.",
            min=1,
            max=10_000,
        ),
    ] = None,
    value_bytes: Annotated[
        int | None,
        typer.Option(
            "--value-bytes", help="Size of each value, by padding.", min=LEAST_BYTES, max=900_000
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the records.", min=0)] = 0,
    output: Output = Format.TABLE,
) -> None:
    """Generate load: timestamped JSON records at a given rate."""
    wanted = _shape(shape, rate, peak, period_s, trace_name)
    address = kafka_address(kafka)
    settings = {} if kafka_settings is None else read_settings(kafka_settings)
    records = _records(events, keys, zipf, value_bytes, seed)
    with progress() as tell:
        summary = generate(
            address,
            topic,
            wanted,
            length_s,
            records,
            partitions=partitions,
            settings=settings,
            on_progress=lambda progress: tell(_line(progress, length_s, address)),
        )
    data = {
        "kafka": address,
        "events": events.value,
        "shape": shape.value,
        **asdict(summary),
    }
    answer(output, data, lambda console: _draw(summary, console))
    if summary.interrupted:
        raise typer.Exit(130)
    if summary.failed:
        raise BrokerUnavailable(
            f"{summary.failed:,} of {plural(summary.sent + summary.failed, 'record')} "
            f"{'was' if summary.failed == 1 else 'were'} not delivered.",
            f"Check the Kafka at {address}.",
        )


load_command.__doc__ = f"""{load_command.__doc__}

Events: clicks have the fields {SCHEMA}:
the user, which is the record's key, the address of a page, the time at which the record was given
to Kafka's client, and its number from 0 on. nexmark: persons, auctions and bids, 1:3:46, with
Nexmark's hot auctions, bidders and sellers. ads: the events of the Yahoo streaming benchmark.
--keys, --zipf and --value-bytes are for clicks only.

Shapes: constant; step (--rate, after one period --peak); spike (--peak in the last tenth of each
period); ramp (to --peak in one period); sine (between the two); trace (the rows of a CSV, one per
period). A load that falls behind catches up, at most at one and a half times its highest rate.
"""


def _records(
    events: EventsName,
    keys: int | None,
    zipf: float | None,
    value_bytes: int | None,
    seed: int,
) -> RecordMaker:
    if events is EventsName.CLICKS:
        return Records(1000 if keys is None else keys, zipf or 0.0, value_bytes, seed)
    given = {"--keys": keys, "--zipf": zipf, "--value-bytes": value_bytes}
    if unused := [option for option, value in given.items() if value is not None]:
        raise InvalidLoad(
            f"{', '.join(unused)} cannot be chosen for {events.value}: the benchmark fixes it.",
            "Leave it out, or use --events clicks.",
        )
    return nexmark.NexmarkEvents(seed) if events is EventsName.NEXMARK else ad_events.AdEvents(seed)


def _line(progress: LoadProgress, length_s: float, address: str) -> str:
    done = f"{progress.at_s:.0f} of {length_s:g} s, {plural(progress.sent, 'record')}"
    if not progress.unreachable:
        return done
    waiting = plural(progress.waiting, "record")
    return f"{done}; {waiting} waiting: Kafka at {address} does not answer"


def _shape(
    name: ShapeName,
    rate: float,
    peak: float | None,
    period_s: float | None,
    trace_name: str | None,
) -> shapes.Shape:
    if (trace_name is not None) != (name is ShapeName.TRACE):
        raise InvalidLoad(
            "--shape trace and --trace belong together.",
            f"Shipped traces are {', '.join(trace.names())}.",
        )
    if trace_name is not None:
        return shapes.Trace(rate, trace.load(trace_name), period_s or ROW_S)
    if name is ShapeName.CONSTANT:
        return shapes.Constant(rate)
    kind: Callable[[float, float, float], shapes.Shape] = {
        ShapeName.STEP: shapes.StepChange,
        ShapeName.SPIKE: shapes.Spike,
        ShapeName.RAMP: shapes.Ramp,
        ShapeName.SINE: shapes.Sine,
    }[name]
    return kind(rate, PEAK * rate if peak is None else peak, period_s or PERIOD_S)


def _draw(summary: LoadSummary, console: Console) -> None:
    shown = {
        "topic": summary.topic,
        "seconds": summary.seconds,
        "sent": f"{summary.sent:,}",
        "failed": f"{summary.failed:,}",
        "wanted/s": number(summary.wanted_per_s),
        "sent/s": number(summary.sent_per_s),
        "most behind": f"{summary.most_behind:,}",
        "behind at end": f"{summary.behind_at_end:,}",
    }
    console.print(table(None, tuple(shown), [tuple(shown.values())]))
