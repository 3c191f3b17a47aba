"""Plans the parts of a job on a real session: their topics, and the columns that cuts carry."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from trilithon.engines.spark.compiler import Chain, check_supported, plan_chain
from trilithon.engines.spark.cuts import Cut, Part, PartJob, cut_into_parts, part_job
from trilithon.engines.spark.frame import output_columns
from trilithon.engines.spark.internal_topics import InternalTopics
from trilithon.engines.spark.kafka import Kafka, partitions
from trilithon.engines.spark.start import plan_with_partitions
from trilithon.errors import InvalidJob, Problem
from trilithon.model.job import Field, Job, Operator


@dataclass(frozen=True)
class PlannedJob:
    """The parts of a job as jobs of their own, each before those that read from it."""

    job: Job
    parts: tuple[PartJob, ...]
    chains: tuple[Chain, ...]
    # Whether an internal topic was there before: then the job has run before.
    resumed: bool

    @property
    def by_id(self) -> dict[str, PartJob]:
        return {part.id: part for part in self.parts}

    @property
    def edge_topics(self) -> dict[str, str]:
        """The internal topics, by the edges that they carry, written `from->to`."""
        return {
            "{0.source}->{0.target}".format(part.reads[cut].edge): topic
            for part in self.parts
            for cut, topic in internal_topics(part).items()
        }

    @property
    def topics(self) -> set[str]:
        """The internal topics."""
        return {
            sink.topic for part in self.parts for sink in part.sinks if sink.name in part.writes
        }


def internal_topics(part: PartJob) -> dict[str, str]:
    """The internal topics that a part reads, by the name of the cut."""
    return {
        source.name: source.topics[0]
        for source in part.sources
        if source.name in part.reads and part.reads[source.name].internal
    }


def part_checkpoint(checkpoint: str, part: PartJob) -> str:
    """The name of a part's checkpoint. It has offsets of internal topics: with other topics it is
    another checkpoint.
    """
    if not (topics := internal_topics(part)):
        return checkpoint
    digest = hashlib.sha256(repr(sorted(topics.values())).encode()).hexdigest()[:8]
    return f"{checkpoint or 'first'}-{digest}"


@dataclass(frozen=True)
class PartPlanner:
    """Plans jobs of several parts."""

    spark: SparkSession
    kafka: Kafka
    topics: InternalTopics

    def plan(self, job: Job, checkpoint: str) -> PlannedJob:
        """The parts of a job. Raises `InvalidJob`, with the path in the job's file, for whatever
        Spark or Kafka refuse; only then creates the job's internal topics.
        """
        check_supported(job)
        kafka = self.kafka.of_tenant(job.tenant)
        partitions(self.spark, kafka, job)  # its topics exist
        graph = cut_into_parts(job)
        columns = self._columns(job)

        def topic_of(cut: Cut) -> str:
            return self.topics.name(job.id, cut, checkpoint, columns[cut.edge.source])

        wanted = {topic_of(cut): cut.partitions for cut in graph.cuts}
        counts, resumed = self.topics.create(wanted)
        by_cut = {cut.name: counts[topic_of(cut)] for cut in graph.cuts}
        parts = [
            part_job(graph, _with_partitions(part, by_cut), topic_of, columns)
            for part in graph.parts
        ]
        chains = tuple(plan_with_partitions(self.spark, part, kafka) for part in parts)
        return PlannedJob(job, tuple(parts), chains, resumed)

    def _columns(self, job: Job) -> dict[str, tuple[Field, ...]]:
        """The columns of each part's last operator, by that operator."""
        graph = cut_into_parts(job)
        columns: dict[str, tuple[Field, ...]] = {}
        for part in graph.parts:
            _check_merge(job, part.operators[0], part.reads, columns)
            analysed = part_job(graph, part, lambda cut: cut.name, columns)
            chain = plan_chain(analysed)
            columns[part.operators[-1].name] = output_columns(self.spark, chain, self.kafka)
        return columns


def _check_merge(
    job: Job,
    operator: Operator,
    reads: tuple[Cut, ...],
    columns: Mapping[str, tuple[Field, ...]],
) -> None:
    """Streams that merge must have the same columns, with the same types."""
    types = {
        cut.edge.source: {f.name.lower(): f.type.lower() for f in columns[cut.edge.source]}
        for cut in reads
        if cut.internal and not cut.table_key
    }
    names = list(types)
    for other in names[1:]:
        if types[other] == types[names[0]]:
            continue
        differing = sorted(set(types[other].items()) ^ set(types[names[0]].items()))
        listed = ", ".join(f"{name} {kind}" for name, kind in differing)
        problem = Problem(
            "COLUMNS_DIFFER",
            f"operators[{job.operators.index(operator)}].inputs",
            f"{names[0]!r} and {other!r} have different columns: {listed}.",
            "Select the same columns in both, with a CAST where types differ.",
        )
        raise InvalidJob([problem], job.id)


def _with_partitions(part: Part, counts: Mapping[str, int]) -> Part:
    """A part with the partitions that the topics of its cuts have."""

    def actual(cuts: tuple[Cut, ...]) -> tuple[Cut, ...]:
        return tuple(replace(cut, partitions=counts.get(cut.name, cut.partitions)) for cut in cuts)

    return replace(part, reads=actual(part.reads), writes=actual(part.writes))
