"""What of state Spark's real-time mode cannot run is refused before anything starts."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from trilithon.engines.spark.compiler import plan_chain, unsupported
from trilithon.engines.spark.file_path import CheckpointPath, LocalPath
from trilithon.engines.spark.state_partitions import check_same_state, fit_state
from trilithon.errors import EngineFailed, NeedsNewCheckpoint
from trilithon.model.job import Edge, Job, Operator, Parallelism, Watermark, Work
from trilithon.spec.job_file import parse_job

COUNT = "group_by: [v], aggregate: {n: 'count(*)'}"
WATERMARK = "watermark: {eventTime: at, delayThreshold: 10 seconds}"


def job_of(*steps: str) -> Job:
    names = [f"step{i}" for i in range(len(steps))]
    operators = "\n".join(
        f"  - {{name: {name}, input: {before}, {step}}}"
        for name, before, step in zip(names, ["in", *names], steps, strict=False)
    )
    return parse_job(f"""
name: limits
sources: [{{name: in, options: {{subscribe: t}}, schema: "v INT, w TIMESTAMP, at TIMESTAMP"}}]
operators:
{operators}
sinks: [{{name: out, input: {names[-1]}, options: {{topic: o}}}}]
""")


REFUSED = [
    (f"where: v > 0, {COUNT}", "operators[0].where", "Put `where` into an operator before it."),
    (
        f"select: [v, at], {COUNT}",
        "operators[0].select",
        "Put `select` into an operator before it.",
    ),
    (
        "group_by: [v], aggregate: {n: 'count(DISTINCT w)'}",
        "operators[0].aggregate.n",
        "Use approx_count_distinct, or deduplicate in an operator before it.",
    ),
    (
        f"{WATERMARK}, deduplicate: [v]",
        "operators[0].deduplicate",
        "Add 'at' to `deduplicate`: copies of a record have the same event time.",
    ),
    (
        f"{WATERMARK}, {COUNT}, window: {{timeColumn: w, windowDuration: 10 seconds}}",
        "operators[0].window.timeColumn",
        "Use the same column in both.",
    ),
]


@pytest.mark.parametrize(("step", "path", "hint"), REFUSED)
def test_a_use_of_state_that_spark_cannot_run_is_refused_with_an_alternative(
    step: str, path: str, hint: str
) -> None:
    (problem,) = unsupported(job_of(step))
    assert (problem.code, problem.path, problem.hint) == ("STATEFUL_OPERATOR", path, hint)


def test_a_query_has_one_operator_with_state() -> None:
    second = "group_by: [n], aggregate: {m: 'count(*)'}"
    (problem,) = unsupported(job_of(COUNT, second))
    assert (problem.code, problem.path) == ("STATEFUL_OPERATOR", "operators[1]")
    assert "'step1' keeps state behind 'step0'" in problem.message


def fanned_out(first: str, second: str) -> Job:
    """step0 → (step1 → out, other → out)."""
    line = job_of(first, second)
    return replace(
        line,
        operators=(*line.operators, Operator("other")),
        edges=(*line.edges, Edge("step0", "other"), Edge("other", "out")),
    )


def test_each_part_of_a_job_may_keep_state_but_not_behind_an_aggregate() -> None:
    assert not [*unsupported(fanned_out(COUNT, "where: n > 0"))]
    assert not [*unsupported(fanned_out("where: v > 0", COUNT))]
    distinct = f"{WATERMARK}, deduplicate: [v, at]"
    assert not [*unsupported(fanned_out(distinct, COUNT))]
    again = "group_by: [n], aggregate: {m: 'count(*)'}"
    (problem,) = unsupported(fanned_out(COUNT, again))
    assert (problem.code, problem.path) == ("STATEFUL_OPERATOR", "operators[1]")
    assert "behind the aggregate 'step0'" in problem.message
    # Also through parts that keep none.
    through = job_of(COUNT, "where: n > 0", again)
    edges = (*through.edges, Edge("step0", "other"), Edge("step1", "other"), Edge("other", "out"))
    through = replace(through, operators=(*through.operators, Operator("other")), edges=edges)
    assert [p.path for p in unsupported(through)] == ["operators[2]"]


def test_what_is_looked_up_in_rows_of_an_aggregate_may_be_counted() -> None:
    looked_up = parse_job("""
name: lookup
sources: [{name: in, options: {subscribe: t}, schema: "v INT"}]
operators:
  - {name: count, input: in, group_by: [v], aggregate: {n: 'count(*)'}}
  - {name: pass, inputs: [in, {from: count, grouping: broadcast}], join: {table: count, on: [v]}}
  - {name: again, input: pass, group_by: [n], aggregate: {m: 'count(*)'}}
sinks: [{name: out, input: again, options: {topic: o}}]
""")
    assert not [*unsupported(looked_up)]


def test_state_has_as_many_tasks_as_its_operator_starts_with() -> None:
    steps = (f"{COUNT}, parallelism: {{initial: 3, max: 9}}", "parallelism: {initial: 1, max: 5}")
    chain = plan_chain(job_of(*steps))
    assert chain.tasks_per_stage == (1, 3, 5)
    assert chain.job.tasks == 1 + 3 + 5
    # Without a number there is room for growth.
    assert job_of(COUNT).operator("step0").parallelism == Parallelism(8, 1, 8)


def test_a_version_that_keeps_another_state_needs_another_checkpoint() -> None:
    job = job_of(f"{WATERMARK}, {COUNT}", "where: n > 0")
    counting, later = job.operators

    def version(operator: Operator) -> Job:
        return replace(job, operators=(operator, later))

    check_same_state(job, replace(job, operators=(counting, replace(later, work=Work()))))
    check_same_state(job, version(replace(counting, parallelism=Parallelism(4, 2, 9))))
    for changed in (
        replace(counting, work=replace(counting.work, group_by=("v", "w"))),
        replace(counting, work=replace(counting.work, watermark=Watermark("at", 60.0))),
        replace(counting, work=replace(counting.work, aggregate=(("n", "count(w)"),))),
        replace(counting, name="other"),
    ):
        with pytest.raises(NeedsNewCheckpoint, match="keeps another state"):
            check_same_state(job, version(changed))


@dataclass
class Session:
    """A Spark session that only repartitions checkpoints, or fails to."""

    fails: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[int, str | None]] = field(default_factory=list)

    @property
    def conf(self) -> Any:
        return self

    def get(self, name: str, default: str | None) -> str | None:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def unset(self, name: str) -> None:
        del self.settings[name]

    @property
    def _streamingCheckpointManager(self) -> Any:  # noqa: N802 - Spark's name
        return self

    def repartition(self, checkpoint: str, tasks: int, _once: bool) -> None:
        name = "spark.sql.streaming.stateStore.checkpointFormatVersion"
        self.calls.append((tasks, self.settings.get(name)))
        (Path(checkpoint) / "offsets" / "1").write_text("unfinished")
        if self.fails:
            raise RuntimeError("the state cannot be read\nat line 1")


@pytest.fixture
def checkpoint(tmp_path: Path) -> LocalPath:
    return real_time_checkpoint(tmp_path)


def real_time_checkpoint(parent: Path) -> LocalPath:
    """As a query with four partitions leaves it."""
    folder = LocalPath(parent / "first")
    for part in ("offsets", "state/0/_metadata/v2"):
        (folder / part).mkdir(parents=True)
    conf = '{"conf": {"spark.sql.shuffle.partitions": "4"}}'
    (folder / "offsets" / "0").write_text(f"v1\n{conf}\n{{}}")
    metadata = folder / "state/0/_metadata/v2"
    (metadata / "0").write_text('v2\n{"operatorName": "StatefulStreamlineAggregate"}')
    (metadata / ".0.crc").write_text("")
    return folder


def fit(session: Session, checkpoint: CheckpointPath, tasks: int) -> None:
    operator = job_of(f"{COUNT}, parallelism: {tasks}").operators
    fit_state(session, checkpoint, operator)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, str]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_text() for file in files}


def test_state_is_divided_anew_if_a_job_needs_another_number_of_partitions(
    checkpoint: LocalPath,
) -> None:
    session = Session()
    fit(session, checkpoint, 4)
    fit_state(session, checkpoint, job_of("where: v > 0").operators)  # type: ignore[arg-type]
    fit(session, checkpoint.with_name("new"), 8)
    assert session.calls == []
    fit(session, checkpoint, 8)
    # In the format that real-time mode writes, and by the name that Spark knows.
    assert session.calls == [(8, "2")]
    assert session.settings == {}
    metadata = {name for name in contents(checkpoint) if "_metadata" in name}
    assert metadata == {"state/0/_metadata/v2/0"}
    assert "stateStoreSave" in contents(checkpoint)["state/0/_metadata/v2/0"]
    assert [folder.name for folder in checkpoint.parent.iterdir()] == ["first"]


def test_a_repartitioning_that_fails_leaves_the_checkpoint_as_it_was(checkpoint: LocalPath) -> None:
    before = contents(checkpoint)
    with pytest.raises(EngineFailed, match="into 8 partitions instead of 4: the state cannot be"):
        fit(Session(fails=True), checkpoint, 8)
    assert contents(checkpoint) == before
    assert [folder.name for folder in checkpoint.parent.iterdir()] == ["first"]


def test_a_repartitioning_that_was_interrupted_is_undone_at_the_next_start(
    checkpoint: LocalPath,
) -> None:
    before = contents(checkpoint)
    copy = checkpoint.with_name("first.before")
    checkpoint.rename(copy)
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "1").write_text("half of it")
    session = Session()
    fit(session, checkpoint, 4)
    assert session.calls == []
    assert contents(checkpoint) == before
    assert not copy.exists()


def test_half_of_a_copy_is_never_put_back(checkpoint: LocalPath) -> None:
    """A division deletes its copy last, which may be interrupted, and begins by making one."""
    before = contents(checkpoint)
    copy = checkpoint.with_name("first.copying")
    (copy / "offsets").mkdir(parents=True)
    (copy / "offsets" / "0").write_text("half of it")
    fit(Session(), checkpoint, 4)
    assert contents(checkpoint) == before
    assert not copy.exists()
