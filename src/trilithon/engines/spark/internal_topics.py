"""Owns the topics that link the parts of a job: their names, their life, and how large they get.

A topic is named by its job and its edge, below the name of this installation, whose checkpoints
have its offsets: two installations on one Kafka do not share topics. Kafka deletes nothing from it
by age, since a record that was not read yet would be lost. Instead the engine deletes what the part
behind the cut has committed, except the latest records, whose ids tell doubles. What is not read
yet is bounded by holding the senders back.
"""

import hashlib
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from trilithon.engines.spark.cuts import TOPIC_PREFIX, Cut
from trilithon.engines.spark.file_path import FilePath
from trilithon.engines.spark.kafka import Kafka, admin_client, await_known, topics
from trilithon.model.job import Field

# Kafka's limit for the name of a topic.
_MOST_CHARS: Final = 249
# Files of this size can be deleted soon; Kafka's default is 1 GB.
_SETTINGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(50 * 2**20),
}
_INSTALLATION: Final = ".installation"
_KNOWN_S: Final = 10.0


@dataclass
class InternalTopics:
    """The internal topics of an application's jobs."""

    spark: SparkSession
    kafka: Kafka
    # The folder of the checkpoints, which have the topics' offsets.
    root: FilePath
    _installation: str = ""

    @property
    def installation(self) -> str:
        """Eight characters that name the folder of the checkpoints, made when they are first
        needed.
        """
        if not self._installation:
            file = self.root / _INSTALLATION
            if not file.exists():
                self.root.mkdir(parents=True, exist_ok=True)
                file.write_text(secrets.token_hex(4), "utf-8")
            self._installation = file.read_text("utf-8")
        return self._installation

    def prefix(self, job: str) -> str:
        tenant, _, name = job.partition("/")
        return f"{TOPIC_PREFIX}{self.installation}.{tenant}.{name}."

    def name(self, job: str, cut: Cut, checkpoint: str, columns: Collection[Field]) -> str:
        """The topic of a cut. With other columns, or from another checkpoint, it is another topic:
        no part reads records that were written for another version of it.
        """
        version = hashlib.sha256(repr((checkpoint, *columns)).encode()).hexdigest()[:8]
        name = f"{self.prefix(job)}{cut.name}.{version}"
        if len(name) > _MOST_CHARS:
            digest = hashlib.sha256(name.encode()).hexdigest()[:16]
            name = f"{name[: _MOST_CHARS - len(digest) - 1]}.{digest}"
        return name

    def create(self, wanted: Mapping[str, int]) -> tuple[dict[str, int], bool]:
        """Creates the topics that are missing, each with so many partitions, and adds partitions
        where there are too few. Returns the partitions of each, and whether one was there before.
        Partitions cannot be taken away: a topic may have more than were asked for.
        """
        existing = topics(self.spark, self.kafka, wanted)
        with admin_client(self.spark, self.kafka) as (jvm, admin):
            kafka, optional = jvm.org.apache.kafka.clients.admin, jvm.java.util.Optional
            settings = jvm.java.util.HashMap()
            for key, value in _SETTINGS.items():
                settings.put(key, value)
            new, more = jvm.java.util.ArrayList(), jvm.java.util.HashMap()
            for name, count in wanted.items():
                if name not in existing:
                    new.add(kafka.NewTopic(name, optional.of(count), optional.empty()))
                    new[-1].configs(settings)
                elif existing[name] < count:
                    more.put(name, kafka.NewPartitions.increaseTo(count))
            if not new.isEmpty():
                admin.createTopics(new).all().get()
            if not more.isEmpty():
                admin.createPartitions(more).all().get()
        await_known(wanted, lambda: topics(self.spark, self.kafka, wanted), _KNOWN_S)
        counts = {name: max(count, existing.get(name, 0)) for name, count in wanted.items()}
        return counts, bool(existing)

    def delete(self, job: str, keep: Collection[str] = ()) -> None:
        """Deletes the topics of a job, except those to keep."""
        prefix, kept = self.prefix(job), set(keep)
        with admin_client(self.spark, self.kafka) as (jvm, admin):
            gone = jvm.java.util.ArrayList()
            for name in admin.listTopics().names().get():
                if str(name).startswith(prefix) and str(name) not in kept:
                    gone.add(name)
            if not gone.isEmpty():
                admin.deleteTopics(gone).all().get()

    def purge(self, before: Mapping[tuple[str, int], int]) -> None:
        """Deletes the records of partitions before an offset. A record that is gone already makes
        no difference.
        """
        with admin_client(self.spark, self.kafka) as (jvm, admin):
            kafka, request = jvm.org.apache.kafka, jvm.java.util.HashMap()
            for (topic, number), offset in before.items():
                partition = kafka.common.TopicPartition(topic, number)
                request.put(partition, kafka.clients.admin.RecordsToDelete.beforeOffset(offset))
            admin.deleteRecords(request).all().get()
