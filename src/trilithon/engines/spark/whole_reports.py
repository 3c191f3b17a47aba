"""Makes whole reports of the differences that executors send.

An executor sends a whole report now and then, and in between the rows that differ from it. Each
difference says which whole report it is based on, so that one that is lost, repeated or late
changes nothing: rows hold cumulative counters, and the next difference has them all. Of the buckets
of a histogram a difference has those that changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Key = tuple[Any, ...]


def _instance(row: Mapping[str, Any]) -> Key:
    return (row["job"], row["operator"], row["index"], row["incarnation"])


def _reader(row: Mapping[str, Any]) -> Key:
    return (row["job"], row["incarnation"], row["partition"])


@dataclass
class _Base:
    """The rows of a whole report, and the place of each."""

    sequence: int
    instances: list[Row]
    readers: list[Row]
    instance_places: dict[Key, int] = field(init=False)
    reader_places: dict[Key, int] = field(init=False)

    def __post_init__(self) -> None:
        self.instance_places = {_instance(row): i for i, row in enumerate(self.instances)}
        self.reader_places = {_reader(row): i for i, row in enumerate(self.readers)}

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> "_Base":
        return cls(int(report["sequence"]), report["instances"], report.get("readers", []))

    def with_difference(self, report: Mapping[str, Any]) -> Row:
        instances = self.instances.copy()
        for place, cpu_ns in report["cpu_ns"]:
            instances[place] = {**instances[place], "cpu_ns": cpu_ns}
        for row in report["instances"]:
            place = self.instance_places.get(_instance(row))
            _put(instances, place, row if place is None else _merged(self.instances[place], row))
        readers = self.readers.copy()
        for row in report["readers"]:
            _put(readers, self.reader_places.get(_reader(row)), row)
        return {**report, "instances": instances, "readers": readers}


def _merged(base: Row, row: Row) -> Row:
    """A row with all buckets of its histogram."""
    histogram = row.get("e2e", {})
    if "more" not in histogram:
        return row
    buckets = {**base["e2e"]["buckets"], **histogram["more"]}
    rest = {name: value for name, value in histogram.items() if name != "more"}
    return {**row, "e2e": {**rest, "buckets": buckets}}


def _put(rows: list[Row], place: int | None, row: Row) -> None:
    if place is None:
        rows.append(row)
    else:
        rows[place] = row


@dataclass
class WholeReports:
    """The last whole report of each executor."""

    _bases: dict[str, _Base] = field(default_factory=dict)

    def complete(self, drained: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """What was drained, with whole reports alone; and whether a report had to be left out,
        since the whole one before it never came.
        """
        for base in drained.pop("bases", ()):
            self._bases[base["executor"]] = _Base.of(base)
        reports, missing = [], False
        for report in drained["reports"]:
            executor = report["executor"]
            if "base" not in report:
                self._bases[executor] = _Base.of(report)
                reports.append(report)
                continue
            known = self._bases.get(executor)
            if known is not None and known.sequence == report["base"]:
                reports.append(known.with_difference(report))
            else:
                missing = True
        for executor in drained["lost"]:
            self._bases.pop(executor, None)
        return {**drained, "reports": reports}, missing

    def __len__(self) -> int:
        return len(self._bases)
