"""Owns the command `peek`: the records of a topic, decoded, for people."""

import contextlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.kafka_address import kafka_address
from trilithon.cli.output import Format, Listing, Output, answer, data_console, message_console
from trilithon.cli.record_text import printable, record_text, value_text
from trilithon.cli.settings import read_settings
from trilithon.workloads.topic_reader import Record, TopicReader


def peek_command(
    topic: Annotated[
        str | None,
        typer.Argument(help="The topic to read; without it, all topics are listed."),
    ] = None,
    count: Annotated[
        int, typer.Option("-n", help="How many of the latest records to print.", min=0, max=100_000)
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print records as they come, until Ctrl-C.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print a line per record, with the value as it is.")
    ] = False,
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
    output: Output = Format.TABLE,
) -> None:
    """Print the latest records of a topic. Each with its time, partition, offset, key and headers.

    A value that is JSON is printed indented, another one as text. Reading joins no consumer group
    and changes nothing. With --follow, `-o json` prints one record per line.
    """
    if follow and output is Format.YAML:
        raise typer.BadParameter("--follow prints a table or JSON, one record per line.")
    settings = {} if kafka_settings is None else read_settings(kafka_settings)
    with (
        contextlib.suppress(KeyboardInterrupt) if follow else contextlib.nullcontext(),
        TopicReader(kafka_address(kafka), settings) as reader,
    ):
        if topic is None:
            _list(reader, output)
            return
        records = reader.latest(topic, count)
        if not follow:
            answer(
                output,
                [record.as_data() for record in records],
                lambda console: _draw(topic, records, console, raw=raw),
            )
            return
        _print(records, output, raw=raw)
        complaints = message_console()
        for record in reader.following(
            lambda reason: complaints.print(
                f"Kafka at {reader.kafka} does not answer: {reason}", soft_wrap=True
            )
        ):
            _print([record], output, raw=raw)


def _list(reader: TopicReader, output: Format) -> None:
    topics = reader.topics()
    data = [
        {"topic": name, "partitions": len(parts), "records": reader.count(name, parts)}
        for name, parts in topics.items()
    ]

    def draw(console: Console) -> None:
        if not data:
            console.print(f"Kafka at {reader.kafka} has no topics.", soft_wrap=True)
            return
        columns = ("topic", "partitions", "records")
        rows = [(row["topic"], row["partitions"], f"{row['records']:,}") for row in data]
        console.print(Listing(columns, rows), crop=False)

    answer(output, data, draw)


def _draw(topic: str, records: Iterable[Record], console: Console, *, raw: bool) -> None:
    drawn = [_text(record, raw=raw) for record in records]
    if not drawn:
        console.print(f"The topic {topic!r} is empty.", soft_wrap=True)
    for part in drawn:
        console.print(part, soft_wrap=True)


def _print(records: Iterable[Record], output: Format, *, raw: bool) -> None:
    """Prints records that are followed, at once."""
    console = data_console()
    for record in records:
        if output is Format.JSON:
            sys.stdout.write(json.dumps(record.as_data(), ensure_ascii=False) + "\n")
        else:
            console.print(_text(record, raw=raw), soft_wrap=True)
    sys.stdout.flush()


def _text(record: Record, *, raw: bool) -> Text:
    """A record: its place and key in one line, its value below or, raw, behind it."""
    if record.value is None:
        value = "null"
    elif raw:
        value = printable(record.value).replace("\n", "\\n")
    else:
        data = record.decoded
        is_text = isinstance(data, str) and data == record.value
        value = value_text(data, is_text=is_text)
    place = f"partition {record.partition}  offset {record.offset}"
    line = "  " if raw else "\n  "
    return record_text(record.time, place, record.key, record.headers, f"{line}{value}")
