"""Owns recordings: a series of snapshots in one Parquet file, a row per measured thing.

Every row says when (`time_s`) and what (`kind`, `job`, `node`, `target`, `index`), and has the
numbers of its kind; those of other kinds are null and cost nothing. A job's file is a row of kind
`job`, written when it first appears and whenever it changes. What a controller knew and decided in a round
is a row of kind `round`, as JSON. Any tool that reads Parquet reads this.
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
# Columns that came after the first recordings were made: missing in those.
LATER: Final = frozenset({"clock_error_s", "cores_busy"})
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
    """Writes snapshots one after the other, many of them in a row group: small ones would cost more for
    their headings than for their numbers. Memory does not grow with them.
    """

    def __init__(self, path: Path) -> None:
        self._waiting: list[pa.Table] = []
        self._last_s = -np.inf
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._specs: dict[str, str] = {}
        self._jobs: dict[str, Job] = {}

    def write(self, snapshot: Snapshot, round_: str | None = None) -> None:
        if snapshot.time_s <= self._last_s:
            self._flush()  # within a group a time is one snapshot
        self._last_s = snapshot.time_s
        self._waiting += self._tables(snapshot)
        if round_ is not None:
            self._waiting.append(_rows(snapshot, "round", None, spec=[round_]))
        if sum(table.num_rows for table in self._waiting) >= ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting).combine_chunks())
            self._waiting = []

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
        maybe = {n: job for n, job in snapshot.jobs.items() if self._jobs.get(n) is not job}
        self._jobs.update(maybe)
        specs = {name: json.dumps(job_to_json(job)) for name, job in maybe.items()}
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
    """The series in a recording. Snapshots of the same shape share one layout."""
    return Series(tuple(snapshot for snapshot, _ in read_rounds(path)))


def read_rounds(path: Path) -> list[tuple[Snapshot, str | None]]:
    """Each snapshot with the JSON of the round that a controller made of it, if one did."""
    try:
        with pq.ParquetFile(path) as file:
            _check_schema(file, path)
            groups = (file.read_row_group(i) for i in range(file.num_row_groups))
            return list(_ParquetReader().snapshots(groups))
    except TrilithonError:
        raise
    except FileNotFoundError as error:
        raise FileUnreadable(f"{path} cannot be read: no such file.", "Check the name.") from error
    except Exception as error:  # a foreign reader, on a file that may be damaged anywhere
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidRecording(
            f"{path} is damaged: {reason}.", "A recording is whole once its writer was closed."
        ) from error


def _check_schema(file: pq.ParquetFile, path: Path) -> None:
    found = (file.schema_arrow.metadata or {}).get(b"format", b"").decode(errors="replace")
    if found != FORMAT:
        raise InvalidRecording(
            f"{path} is Parquet but not a recording" + (f" ({found})." if found else "."),
            f"Expected is the format {FORMAT!r}.",
        )
    given = {field.name: field.type for field in file.schema_arrow}
    for field in SCHEMA:
        kind = given.get(field.name)
        if kind is None and field.name in LATER:
            continue
        same = kind == field.type or (field.name == "kind" and kind == pa.string())
        if not same:
            raise InvalidRecording(
                f"{path}: the column {field.name!r} is {kind or 'not there'}.", ""
            )


class _ParquetReader:
    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.layout: Layout | None = None
        self.keys: pa.Table | None = None

    def snapshots(self, groups: Iterable[pa.Table]) -> Iterator[tuple[Snapshot, str | None]]:
        for group in groups:
            if group["time_s"].null_count or not pc.all(pc.is_finite(group["time_s"])).as_py():
                raise InvalidRecording("A row has no time.", "")
            for time_s in pc.unique(group["time_s"]).to_pylist():
                yield self._snapshot(group.filter(pc.equal(group["time_s"], time_s)))

    def _snapshot(self, rows: pa.Table) -> tuple[Snapshot, str | None]:
        kinds = rows["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
        if strange := set(kinds) - set(KINDS):
            raise InvalidRecording(f"A row is of the kind {next(iter(strange))!r}.", "")
        parts = {kind: rows.filter(pa.array(kinds == kind)) for kind in KINDS}
        for name, spec in _zip(parts["job"], "job", "spec"):
            self.jobs[name] = job_from_json(json.loads(spec))
        layout = self._layout(rows, kinds, parts)
        rounds = parts["round"]["spec"].to_pylist()
        snapshot = Snapshot(
            time_s=rows["time_s"][0].as_py(),
            since_s=rows["since_s"][0].as_py(),
            layout=layout,
            instances=_table(
                Instances, parts["instance"], layout.instance_row, "job", "node", "index"
            ),
            edges=_table(Edges, parts["edge"], layout.edge_row, "job", "node", "target"),
            sources=_table(Sources, parts["source"], layout.source_row, "job", "node"),
            sinks=_table(Sinks, parts["sink"], layout.sink_row, "job", "node"),
            latencies=_sketches(parts["sink"], layout.sink_row),
            machines=_table(Machines, parts["machine"], layout.machine_row, "node"),
            jobs={name: self.jobs[name] for name in layout.jobs},
        )
        return snapshot, rounds[0] if rounds else None

    def _layout(self, rows: pa.Table, kinds: Any, parts: Mapping[str, pa.Table]) -> Layout:
        """The layout of the rows: the one before, if nothing came, went or moved."""
        measured = rows.filter(pa.array((kinds != "job") & (kinds != "round")))
        keys = measured.select(["kind", "job", "node", "target", "index"])
        keys = keys.set_column(0, "kind", keys["kind"].cast(pa.string())).combine_chunks()
        if self.layout is not None and not parts["job"].num_rows and keys.equals(self.keys):
            return self.layout
        present = dict.fromkeys(parts["source"]["job"].to_pylist())
        instances: dict[str, dict[str, list[int]]] = {name: {} for name in present}
        for name in present:
            instances[name] = {operator.name: [] for operator in self.jobs[name].operators}
        for job, node, index in _zip(parts["instance"], "job", "node", "index"):
            instances[job][node].append(index)
        self.layout = Layout.build(
            (self.jobs[name] for name in present), instances, parts["machine"]["node"].to_pylist()
        )
        self.keys = keys
        return self.layout


def _zip(rows: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in names), strict=True)


def _places(rows: pa.Table, of: Mapping[Any, int], *keys: str) -> Any:
    """The row of the layout for each row of the file; the two are in the same order as a rule."""
    found = _zip(rows, *keys) if len(keys) > 1 else rows[keys[0]].to_pylist()
    return np.fromiter((of[key] for key in found), dtype=np.int64, count=rows.num_rows)


def _table(table: Any, rows: pa.Table, of: Mapping[Any, int], *keys: str) -> Any:
    place = _places(rows, of, *keys)
    columns = {}
    for name in table.names():
        values = np.full(len(of), np.nan)
        if name not in LATER or name in rows.column_names:
            values[place] = rows[name].to_numpy(zero_copy_only=False)
        columns[name] = values
    return table(**columns)


def _sketches(rows: pa.Table, of: Mapping[Any, int]) -> Sketches:
    place = _places(rows, of, "job", "node")
    known = np.zeros(len(of), dtype=bool)
    known[place] = rows["latency_buckets"].is_valid().to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(pc.list_value_length(rows["latency_buckets"]), 0)
    counted = pc.fill_null(pc.list_value_length(rows["latency_counts"]), 0)
    buckets = pc.list_flatten(rows["latency_buckets"])
    counts = pc.list_flatten(rows["latency_counts"])
    if not sizes.equals(counted) or buckets.null_count or counts.null_count:
        raise InvalidRecording("A histogram has not one count for each bucket.", "")
    row, buckets, counts = np.repeat(place, sizes.to_numpy()), buckets.to_numpy(), counts.to_numpy()
    if not ((counts >= 0) & (np.abs(buckets) < 10_000)).all():
        raise InvalidRecording("A histogram counts from 0 upwards, in buckets that exist.", "")
    return summed(row, buckets.astype(np.int64), counts.astype(float), known)
