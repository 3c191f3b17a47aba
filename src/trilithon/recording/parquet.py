"""Writes and reads recordings: a series of snapshots in one Parquet file.

Each row has a time (`time_s`), a key (`kind`, `job`, `node`, `target`, `index`) and the numbers of
its kind: instance, edge, source, sink or machine. Columns of other kinds are null and take no
space. A job file is a row of kind `job`, written when the job first appears and whenever it
changes. What the controller knew and decided in a round is a row of kind `round`, as JSON. Any tool
that reads Parquet can read a recording.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilithon.errors import FileUnreadable, InvalidRecording, TrilithonError
from trilithon.model.columns import TABLES, Edges, Instances, Machines, Sinks, Sources
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.series import Series
from trilithon.model.sketches import Sketches, summed
from trilithon.model.snapshot import Snapshot
from trilithon.recording.snapshots import job_from_json, job_to_json

KINDS: Final = ("job", "instance", "edge", "source", "sink", "machine", "round")
FORMAT: Final = "trilithon-recording/1"
ROWS_PER_GROUP: Final = 10_000
# Columns added since the first version of the format; older recordings do not have them.
ADDED_COLUMNS: Final = frozenset(
    {"clock_error_s", "cores_busy", "write_waits", "write_wait_s", "ahead", "clock_steps"}
)
_NUMBERS: Final = tuple(dict.fromkeys(name for table in TABLES for name in table.names()))
SCHEMA: Final = pa.schema(
    [
        ("time_s", pa.float64()),
        ("since_s", pa.float64()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("job", pa.string()),
        ("node", pa.string()),
        ("target", pa.string()),
        ("index", pa.int64()),
        *((name, pa.float64()) for name in _NUMBERS),
        ("latency_buckets", pa.list_(pa.int64())),
        ("latency_counts", pa.list_(pa.float64())),
        ("spec", pa.string()),
    ],
    metadata={"format": FORMAT},
)


class ParquetRecorder:
    """Writes snapshots to a Parquet file one by one.

    Many snapshots share a row group: the metadata of small groups would be larger than their data.
    Memory use does not grow with the length of the recording.
    """

    def __init__(self, path: Path) -> None:
        self._buffer: list[pa.Table] = []
        self._last_s = -np.inf
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._specs: dict[str, str] = {}
        self._jobs: dict[str, Job] = {}

    def write(self, snapshot: Snapshot, round_: str | None = None) -> None:
        if snapshot.time_s <= self._last_s:
            self._flush()  # within a row group, a time identifies a snapshot
        self._last_s = snapshot.time_s
        self._buffer += self._tables(snapshot)
        if round_ is not None:
            self._buffer.append(_rows(snapshot, "round", None, spec=[round_]))
        if sum(table.num_rows for table in self._buffer) >= ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._buffer:
            self._writer.write_table(pa.concat_tables(self._buffer).combine_chunks())
            self._buffer = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tables(self, snapshot: Snapshot) -> Iterator[pa.Table]:
        layout = snapshot.layout
        yield self._changed_jobs(snapshot)
        job_of_node = [layout.jobs[job] for job in layout.node_job]
        node, source, target = layout.instance_node, layout.edge_source, layout.edge_target
        names = layout.node_names
        yield _rows(
            snapshot,
            "instance",
            snapshot.instances,
            job=[job_of_node[n] for n in node],
            node=[names[n] for n in node],
            index=layout.instance_index,
        )
        yield _rows(
            snapshot,
            "edge",
            snapshot.edges,
            job=[job_of_node[n] for n in source],
            node=[names[n] for n in source],
            target=[names[n] for n in target],
        )
        for kind, table, nodes, more in (
            ("source", snapshot.sources, layout.source_nodes, {}),
            ("sink", snapshot.sinks, layout.sink_nodes, _histograms(snapshot.latencies)),
        ):
            yield _rows(
                snapshot,
                kind,
                table,
                job=[job_of_node[n] for n in nodes],
                node=[names[n] for n in nodes],
                **more,
            )
        yield _rows(snapshot, "machine", snapshot.machines, node=list(layout.machines))

    def _changed_jobs(self, snapshot: Snapshot) -> pa.Table:
        # Another object may still be an equal job: the text decides.
        candidates = {n: job for n, job in snapshot.jobs.items() if self._jobs.get(n) is not job}
        self._jobs.update(candidates)
        specs = {name: json.dumps(job_to_json(job)) for name, job in candidates.items()}
        changed = {name: spec for name, spec in specs.items() if self._specs.get(name) != spec}
        self._specs.update(changed)
        return _rows(snapshot, "job", None, job=list(changed), spec=list(changed.values()))


def _rows(snapshot: Snapshot, kind: str, table: Any, **keys: Any) -> pa.Table:
    rows = len(next(iter(keys.values()))) if table is None else len(table)
    columns: dict[str, Any] = {
        "time_s": np.full(rows, snapshot.time_s),
        "since_s": pa.array([snapshot.since_s] * rows, pa.float64()),
        "kind": pa.array([kind] * rows).dictionary_encode().cast(SCHEMA.field("kind").type),
        **keys,
    }
    for name in table.names() if table is not None else ():
        values = table.column(name)
        columns[name] = pa.array(values, mask=np.isnan(values))
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(rows, field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _histograms(latencies: Sketches) -> dict[str, Any]:
    offsets = pa.array(latencies.offsets, pa.int32(), mask=np.append(~latencies.known, False))
    return {
        "latency_buckets": pa.ListArray.from_arrays(offsets, pa.array(latencies.buckets)),
        "latency_counts": pa.ListArray.from_arrays(offsets, pa.array(latencies.counts)),
    }


def write_series(path: Path, snapshots: Iterable[Snapshot]) -> None:
    with ParquetRecorder(path) as recorder:
        for snapshot in snapshots:
            recorder.write(snapshot)


def read_series(path: Path) -> Series:
    """Read the snapshots of a recording. Consecutive ones with the same rows share one layout."""
    return Series(tuple(snapshot for snapshot, _ in read_rounds(path)))


def read_rounds(path: Path) -> list[tuple[Snapshot, str | None]]:
    """Read each snapshot with the JSON of its control round, or None if it has none."""
    try:
        with pq.ParquetFile(path) as file:
            _check_schema(file, path)
            groups = (file.read_row_group(i) for i in range(file.num_row_groups))
            return list(_ParquetReader().snapshots(groups))
    except TrilithonError:
        raise
    except FileNotFoundError as error:
        raise FileUnreadable(f"{path} cannot be read: no such file.", "Check the name.") from error
    except Exception as error:  # third-party reader on a file that may be damaged anywhere
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidRecording(
            f"{path} is damaged or incomplete: {reason}.",
            "A recording can be read once its writer has closed it.",
        ) from error


def _check_schema(file: pq.ParquetFile, path: Path) -> None:
    format_ = (file.schema_arrow.metadata or {}).get(b"format", b"").decode(errors="replace")
    if format_ != FORMAT:
        actual = f"its format is {format_!r}" if format_ else "it has no format"
        raise InvalidRecording(
            f"{path} is Parquet but not a recording: {actual}, expected {FORMAT!r}.", ""
        )
    types = {field.name: field.type for field in file.schema_arrow}
    for field in SCHEMA:
        actual_type = types.get(field.name)
        if actual_type is None and field.name in ADDED_COLUMNS:
            continue
        plain_kind = field.name == "kind" and actual_type == pa.string()
        if actual_type != field.type and not plain_kind:
            problem = "is missing" if actual_type is None else f"has the type {actual_type}"
            raise InvalidRecording(
                f"{path}: the column {field.name!r} {problem}, expected {field.type}.", ""
            )


class _ParquetReader:
    """Rebuilds snapshots from row groups; knows the jobs and the layout of the last snapshot."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.layout: Layout | None = None
        self.keys: pa.Table | None = None

    def snapshots(self, groups: Iterable[pa.Table]) -> Iterator[tuple[Snapshot, str | None]]:
        for group in groups:
            if group["time_s"].null_count or not pc.all(pc.is_finite(group["time_s"])).as_py():
                raise InvalidRecording("The recording has a row without a time.", "")
            for time_s in pc.unique(group["time_s"]).to_pylist():
                yield self._snapshot(group.filter(pc.equal(group["time_s"], time_s)))

    def _snapshot(self, rows: pa.Table) -> tuple[Snapshot, str | None]:
        kinds = rows["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
        if unknown := set(kinds) - set(KINDS):
            raise InvalidRecording(
                f"The recording has a row of the unknown kind {min(map(str, unknown))!r}.",
                f"The kinds are: {', '.join(KINDS)}.",
            )
        by_kind = {kind: rows.filter(pa.array(kinds == kind)) for kind in KINDS}
        for name, spec in _zip(by_kind["job"], "job", "spec"):
            self.jobs[name] = job_from_json(json.loads(spec))
        layout = self._layout(rows, kinds, by_kind)
        rounds = by_kind["round"]["spec"].to_pylist()
        snapshot = Snapshot(
            time_s=rows["time_s"][0].as_py(),
            since_s=rows["since_s"][0].as_py(),
            layout=layout,
            instances=_table(
                Instances, by_kind["instance"], layout.instance_row, "job", "node", "index"
            ),
            edges=_table(Edges, by_kind["edge"], layout.edge_row, "job", "node", "target"),
            sources=_table(Sources, by_kind["source"], layout.source_row, "job", "node"),
            sinks=_table(Sinks, by_kind["sink"], layout.sink_row, "job", "node"),
            latencies=_sketches(by_kind["sink"], layout.sink_row),
            machines=_table(Machines, by_kind["machine"], layout.machine_row, "node"),
            jobs={name: self.jobs[name] for name in layout.jobs},
        )
        return snapshot, rounds[0] if rounds else None

    def _layout(self, rows: pa.Table, kinds: Any, by_kind: Mapping[str, pa.Table]) -> Layout:
        """The layout of the rows; the previous one if the keys and the jobs are the same."""
        measured = rows.filter(pa.array((kinds != "job") & (kinds != "round")))
        keys = measured.select(["kind", "job", "node", "target", "index"])
        keys = keys.set_column(0, "kind", keys["kind"].cast(pa.string())).combine_chunks()
        if self.layout is not None and not by_kind["job"].num_rows and keys.equals(self.keys):
            return self.layout
        present = dict.fromkeys(by_kind["source"]["job"].to_pylist())
        instances: dict[str, dict[str, list[int]]] = {name: {} for name in present}
        for name in present:
            instances[name] = {operator.name: [] for operator in self.jobs[name].operators}
        for job, node, index in _zip(by_kind["instance"], "job", "node", "index"):
            instances[job][node].append(index)
        machines = by_kind["machine"]["node"].to_pylist()
        self.layout = Layout.build((self.jobs[name] for name in present), instances, machines)
        self.keys = keys
        return self.layout


def _zip(rows: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in names), strict=True)


def _layout_rows(rows: pa.Table, row_of: Mapping[Any, int], *keys: str) -> Any:
    """For each row of the file, its row in the layout."""
    names = _zip(rows, *keys) if len(keys) > 1 else rows[keys[0]].to_pylist()
    return np.fromiter((row_of[name] for name in names), dtype=np.int64, count=rows.num_rows)


def _table(table: Any, rows: pa.Table, row_of: Mapping[Any, int], *keys: str) -> Any:
    target_rows = _layout_rows(rows, row_of, *keys)
    columns = {}
    for name in table.names():
        values = np.full(len(row_of), np.nan)
        if name not in ADDED_COLUMNS or name in rows.column_names:
            values[target_rows] = rows[name].to_numpy(zero_copy_only=False)
        columns[name] = values
    return table(**columns)


def _sketches(rows: pa.Table, row_of: Mapping[Any, int]) -> Sketches:
    target_rows = _layout_rows(rows, row_of, "job", "node")
    known = np.zeros(len(row_of), dtype=bool)
    known[target_rows] = rows["latency_buckets"].is_valid().to_numpy(zero_copy_only=False)
    bucket_sizes = pc.fill_null(pc.list_value_length(rows["latency_buckets"]), 0)
    count_sizes = pc.fill_null(pc.list_value_length(rows["latency_counts"]), 0)
    buckets = pc.list_flatten(rows["latency_buckets"])
    counts = pc.list_flatten(rows["latency_counts"])
    if not bucket_sizes.equals(count_sizes) or buckets.null_count or counts.null_count:
        raise InvalidRecording("A latency histogram does not have one count per bucket.", "")
    row = np.repeat(target_rows, bucket_sizes.to_numpy())
    buckets, counts = buckets.to_numpy(), counts.to_numpy()
    if not ((counts >= 0) & (np.abs(buckets) < 10_000)).all():
        raise InvalidRecording(
            "A latency histogram has a negative count, or a bucket beyond ±10,000.", ""
        )
    return summed(row, buckets.astype(np.int64), counts.astype(float), known)
