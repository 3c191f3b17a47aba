"""Reports as differences: what is lost, repeated or late changes nothing."""

from copy import deepcopy
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.whole_reports import WholeReports


def row(index: int, taken: int, cpu_ns: int = 0, incarnation: int = 1) -> dict[str, Any]:
    name = {"job": "t/j", "operator": "a", "index": index, "incarnation": incarnation}
    return {**name, "taken": taken, "cpu_ns": cpu_ns}


def reader(number: int, next_offset: int, incarnation: int = 1) -> dict[str, Any]:
    key = {"job": "t/j", "incarnation": incarnation, "partition": f"in-{number}"}
    return {**key, "next": next_offset}


def whole(sequence: int, *rows: dict[str, Any], executor: str = "1") -> dict[str, Any]:
    report = {"executor": executor, "sequence": sequence}
    return {**report, "instances": list(rows), "readers": [reader(0, sequence)]}


def difference(
    sequence: int, base: int, *rows: dict[str, Any], cpu: tuple[tuple[int, int], ...] = ()
) -> dict[str, Any]:
    report = {"executor": "1", "sequence": sequence, "base": base, "instances": list(rows)}
    return {**report, "cpu_ns": [list(pair) for pair in cpu], "readers": []}


def drained(*reports: dict[str, Any], lost: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {"reports": list(reports), "lost": list(lost), "dropped": 0, **more}


def test_a_difference_is_completed_by_the_rows_that_did_not_change() -> None:
    reports = WholeReports()
    reports.complete(drained(whole(1, row(0, 5), row(1, 7))))
    completed, missing = reports.complete(
        drained(difference(2, 1, row(1, 8), row(2, 1), cpu=((0, 33),)))
    )
    (report,) = completed["reports"]
    assert not missing
    assert report["instances"] == [row(0, 5, 33), row(1, 8), row(2, 1)]
    assert report["readers"] == [reader(0, 1)]
    moved = {**difference(3, 1), "readers": [reader(0, 9), reader(1, 4)]}
    completed, _ = reports.complete(drained(moved))
    assert completed["reports"][0]["readers"] == [reader(0, 9), reader(1, 4)]
    # A later difference is not on top of an earlier one, and the whole report stays as it was.
    completed, _ = reports.complete(drained(difference(4, 1, row(0, 6))))
    assert completed["reports"][0]["instances"] == [row(0, 6), row(1, 7)]


def test_a_histogram_is_completed_by_the_buckets_that_did_not_change() -> None:
    reports = WholeReports()
    first = {**row(0, 3), "e2e": {"count": 3, "buckets": {"7": 1, "9": 2}}}
    reports.complete(drained(whole(1, first, row(1, 0))))
    sent = {**row(0, 5), "e2e": {"count": 5, "more": {"9": 3, "12": 1}}}
    fresh = {**row(1, 1), "e2e": {"count": 1, "buckets": {"5": 1}}}
    # The second is on top of the whole report, whether or not the first came.
    for sequence in (2, 3):
        completed, _ = reports.complete(drained(difference(sequence, 1, sent, fresh)))
        (report,) = completed["reports"]
        expected = {**row(0, 5), "e2e": {"count": 5, "buckets": {"7": 1, "9": 3, "12": 1}}}
        assert report["instances"] == [expected, fresh]
    assert first["e2e"] == {"count": 3, "buckets": {"7": 1, "9": 2}}


def test_a_difference_without_its_whole_report_is_left_out_until_that_comes_again() -> None:
    reports = WholeReports()
    completed, missing = reports.complete(drained(difference(2, 1, row(0, 6))))
    assert (completed["reports"], missing) == ([], True)
    completed, missing = reports.complete(
        drained(difference(3, 1, row(0, 7)), bases=[whole(1, row(0, 5), row(1, 1))])
    )
    assert not missing
    assert completed["reports"][0]["instances"] == [row(0, 7), row(1, 1)]
    assert "bases" not in completed


def test_nothing_is_kept_of_executors_that_are_lost() -> None:
    reports = WholeReports()
    for number in range(50):
        executor = str(number)
        reports.complete(drained(whole(1, row(0, number), executor=executor)))
        reports.complete(drained(lost=(executor,)))
    assert len(reports) == 0


class _Probe:
    """The probe's control in a driver, with answers that are given."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.resent = list(answers), 0

    def drainReports(self) -> str:  # noqa: N802 - Java's name
        return self.answers.pop(0)

    def resendReports(self) -> None:  # noqa: N802 - Java's name
        self.resent += 1


def test_the_driver_is_asked_for_whole_reports_that_are_missing() -> None:
    probe = _Probe(
        '{"reports": [{"executor": "1", "sequence": 9, "base": 4}], "lost": [], "dropped": 0}',
        '{"reports": [], "lost": [], "dropped": 0}',
    )
    jvm = SimpleNamespace(
        io=SimpleNamespace(trilithon=SimpleNamespace(probe=SimpleNamespace(Control=probe)))
    )
    control = ProbeControl(cast("Any", SimpleNamespace(_jvm=jvm)))
    assert control.drain_reports()["reports"] == []
    assert probe.resent == 1
    control.drain_reports()
    assert probe.resent == 1


class _Executor:
    """Sends reports as the probe does: whole ones until one is acknowledged, then differences."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.sent: dict[int, list[dict[str, Any]]] = {}
        self.sequence = self.incarnation = 0

    def change(self, changes: list[tuple[int, int]], *, restart: bool) -> None:
        if restart:
            self.rows, self.incarnation = {}, self.incarnation + 1
        for index, more in changes:
            before = self.rows.get(index, row(index, 0, 0, self.incarnation))
            # What an instance takes is changed by an odd number, else the CPU time alone.
            taken = before["taken"] + more % 2
            changed = row(index, taken, before["cpu_ns"] + more, self.incarnation)
            buckets = dict(before.get("e2e", {}).get("buckets", {}))
            if more % 2:
                bucket = str((taken + more) % 4)
                buckets[bucket] = buckets.get(bucket, 0) + 1
            self.rows[index] = {**changed, "e2e": {"count": taken, "buckets": buckets}}

    def report(self, known: int) -> dict[str, Any]:
        self.sequence += 1
        now = deepcopy(list(self.rows.values()))
        base = self.sent.get(known)
        self.sent[self.sequence] = now
        keys = {(r["index"], r["incarnation"]) for r in now}
        if base is None or not {(r["index"], r["incarnation"]) for r in base} <= keys:
            return whole(self.sequence, *now)
        places = {r["index"]: place for place, r in enumerate(base)}
        changed, cpu = [], []
        for current in now:
            place = places.get(current["index"])
            if place is None or current["taken"] != base[place]["taken"]:
                known_row = {} if place is None else base[place]
                changed.append(_with_changed_buckets(known_row, current))
            elif current["cpu_ns"] != base[place]["cpu_ns"]:
                cpu.append((place, current["cpu_ns"]))
        return difference(self.sequence, known, *changed, cpu=tuple(cpu))


def _with_changed_buckets(base: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    known = base.get("e2e", {}).get("buckets")
    if not known:
        return row
    buckets = row["e2e"]["buckets"]
    more = {bucket: count for bucket, count in buckets.items() if known.get(bucket) != count}
    return {**row, "e2e": {"count": row["e2e"]["count"], "more": more}}


changes = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=4)
steps = st.lists(
    st.tuples(changes, st.booleans(), st.sampled_from(["taken", "taken", "lost", "twice"])),
    max_size=40,
)


@given(steps, st.lists(st.booleans(), min_size=40, max_size=40))
def test_differences_with_losses_and_repeats_give_the_rows_of_whole_reports(
    steps: list[tuple[list[tuple[int, int]], bool, str]], acknowledged: list[bool]
) -> None:
    executor, reports, known, received = _Executor(), WholeReports(), 0, 0
    for step, (changed, restart, fate) in enumerate(steps):
        executor.change(changed, restart=restart and not changed)
        report = executor.report(known)
        if fate != "lost":
            received = received if "base" in report else report["sequence"]
            copies = [deepcopy(report) for _ in range(2 if fate == "twice" else 1)]
            completed, missing = reports.complete(drained(*copies))
            assert not missing
            for one in completed["reports"]:
                rows = {(r["index"], r["incarnation"]): r for r in one["instances"]}
                expected = executor.sent[report["sequence"]]
                assert rows == {(r["index"], r["incarnation"]): r for r in expected}
        if acknowledged[step]:
            known = received
