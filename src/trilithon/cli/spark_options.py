"""Owns the options of the commands that start Spark: its master, its Kafka, its slots."""

from pathlib import Path
from typing import Annotated

import typer

# Task slots: threads that mostly wait, so there may be far more than cores.
TASKS = 64
MASTER = f"local[{TASKS}]"
SLOTS = 32

Master = Annotated[
    str, typer.Option("--master", help="The master of Spark, if this command starts Spark.")
]
Kafka = Annotated[
    str | None, typer.Option("--kafka", help="host:port of a Kafka; default: the embedded broker.")
]
KafkaSettings = Annotated[
    Path | None,
    typer.Option(
        "--kafka-settings",
        help="A file of key=value lines for Kafka's Java client: security and so on.",
    ),
]
TenantKafka = Annotated[
    list[str] | None,
    typer.Option(
        "--tenant-kafka",
        help="TENANT=FILE: settings of Kafka's Java client for the tenant's jobs; several.",
    ),
]
Slots = Annotated[int, typer.Option("--slots", help="How many instances may run at once.", min=1)]
Executors = Annotated[
    int | None,
    typer.Option("--executors", help="How many executors to wait for before jobs start.", min=1),
]
Applications = Annotated[
    int,
    typer.Option(
        "--applications",
        help="Among how many applications the workers of `cluster start` are divided.",
        min=1,
    ),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE: a setting of Spark, such as spark.executor.memory=2g."),
]
