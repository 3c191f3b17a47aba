"""The rows of parts become rows of their job, over restarts of single parts."""

from typing import Any

from trilithon.engines.spark.part_reports import WholeJobs

SPLIT, MERGE = "t/j~split", "t/j~merge"
Rows = dict[Any, dict[str, float]]


class Tables:
    """The tables of one report."""

    def __init__(self) -> None:
        self.instances: Rows = {}
        self.edges: Rows = {}
        self.sources: Rows = {}
        self.sinks: Rows = {}
        self.histograms: dict[Any, dict[int, float]] = {}

    def split(self, life: float, emitted: float) -> "Tables":
        self.instances[SPLIT, "split", 0] = {"incarnation": life, "taken": emitted}
        self.sources[SPLIT, "in"] = {"incarnation": life, "taken": emitted}
        self.edges[SPLIT, "in", "split"] = {"incarnation": life, "taken": emitted}
        row = {"incarnation": life, "emitted": emitted, "parked_s": 1.0, "taken": 0.0}
        self.edges[SPLIT, "split", "split.merge"] = row
        self.sinks[SPLIT, "split.merge"] = {"incarnation": life, "written": emitted}
        return self

    def merge(self, life: float, taken: float) -> "Tables":
        self.sources[MERGE, "split.merge"] = {"incarnation": life, "taken": taken}
        row = {"incarnation": life, "taken": taken, "channel_s": 2.0, "emitted": taken}
        self.edges[MERGE, "split.merge", "merge"] = {**row, "parked_s": 9.0, "senders": 2.0}
        self.sinks[MERGE, "out"] = {"incarnation": life, "written": taken, "latencies": taken}
        self.histograms[MERGE, "out"] = {3: taken}
        return self

    def joined(self, whole: WholeJobs, sender: str = "app/1") -> "Tables":
        whole.join(sender, self.instances, self.edges, self.sources, self.sinks, self.histograms)
        return self


def whole_jobs() -> WholeJobs:
    return WholeJobs({"t/j": 5.0})


def test_behind_a_cut_the_reader_tells_before_which_instance_it_waited() -> None:
    tables = Tables().split(10, 100).merge(20, 90)
    for index, parked_s in enumerate((0.0, 9.0)):
        row = {"incarnation": 20.0, "taken": 45.0, "parked_s": parked_s}
        tables.instances[MERGE, "merge", index] = row
    tables.joined(whole_jobs())
    parked = [tables.instances["t/j", "merge", index]["parked_s"] for index in (0, 1)]
    assert parked == [0.0, 9.0]
    assert tables.edges["t/j", "split", "merge"]["parked_s"] == 1.0


def test_a_cut_edge_is_counted_by_its_sender_and_its_receiver() -> None:
    tables = Tables().split(10, 100).merge(20, 90).joined(whole_jobs())
    assert tables.instances == {("t/j", "split", 0): {"incarnation": 10, "taken": 100}}
    assert tables.sources == {("t/j", "in"): {"incarnation": 10, "taken": 100}}
    assert tables.edges == {
        ("t/j", "in", "split"): {"incarnation": 10, "taken": 100},
        # The sender's parked time, not that of the reader behind the topic.
        ("t/j", "split", "merge"): {
            "incarnation": 5,
            "emitted": 100,
            "parked_s": 1.0,
            "taken": 90,
            "channel_s": 2.0,
        },
    }
    assert tables.sinks == {("t/j", "out"): {"incarnation": 5, "written": 90, "latencies": 90}}
    assert tables.histograms == {("t/j", "out"): {3: 90}}


def test_a_restart_of_one_part_takes_nothing_from_the_counts() -> None:
    whole = whole_jobs()
    edge, out = ("t/j", "split", "merge"), ("t/j", "out")
    Tables().split(10, 100).merge(20, 90).joined(whole)
    down = Tables().split(10, 110).joined(whole)
    assert (down.edges[edge]["emitted"], down.edges[edge]["taken"]) == (110, 90)
    assert down.sinks[out]["written"] == 90
    assert down.histograms[out] == {3: 90}
    again = Tables().split(10, 120).merge(21, 15).joined(whole)
    assert (again.edges[edge]["emitted"], again.edges[edge]["taken"]) == (120, 105)
    assert again.edges[edge]["channel_s"] == 4.0
    assert again.sinks[out] == {"incarnation": 5, "written": 105, "latencies": 105}
    assert again.histograms[out] == {3: 105}
    late = Tables().split(10, 120).merge(20, 91).joined(whole)
    assert late.edges[edge]["taken"] == 105  # an old incarnation's last report


def test_senders_are_counted_apart_and_forgotten_with_their_job() -> None:
    whole = whole_jobs()
    Tables().merge(20, 90).joined(whole, "app/1")
    other = Tables().merge(20, 10).joined(whole, "app/2")
    assert other.sinks["t/j", "out"]["written"] == 10
    whole.lose("app/1")
    assert Tables().joined(whole, "app/1").sinks == {}
    whole.forget("t/j")
    assert Tables().joined(whole, "app/2").sinks == {}


def test_two_parts_that_write_to_one_sink_are_added() -> None:
    tables = Tables().merge(20, 90)
    tables.sinks["t/j~left", "out"] = {"incarnation": 30, "written": 4.0, "latencies": 4.0}
    tables.histograms["t/j~left", "out"] = {3: 1.0, 4: 3.0}
    tables.joined(whole_jobs())
    assert tables.sinks == {("t/j", "out"): {"incarnation": 5, "written": 94, "latencies": 94}}
    assert tables.histograms == {("t/j", "out"): {3: 91, 4: 3}}


def test_an_edge_over_a_sources_own_topic_has_the_reader_as_its_sender() -> None:
    whole = WholeJobs({"t/j": 5.0}, {"t/j": frozenset({"split.merge"})})
    tables = Tables().merge(20, 90).joined(whole)
    edge = tables.edges["t/j", "split", "merge"]
    assert (edge["emitted"], edge["parked_s"], edge["senders"]) == (90, 9.0, 2.0)


def test_jobs_of_one_part_keep_their_rows() -> None:
    tables = Tables()
    tables.sinks["t/chain", "out"] = {"incarnation": 7, "written": 3.0}
    tables.histograms["t/chain", "out"] = {1: 3.0}
    tables.joined(whole_jobs())
    assert tables.sinks == {("t/chain", "out"): {"incarnation": 7, "written": 3.0}}


def test_copies_of_a_broadcast_are_counted_where_they_are_made() -> None:
    whole = whole_jobs()
    whole.broadcast["t/j"] = frozenset({"split.merge"})
    tables = Tables().split(10, 100).merge(20, 300).joined(whole)
    edge = tables.edges["t/j", "split", "merge"]
    assert (edge["emitted"], edge["taken"], edge["parked_s"]) == (300, 300, 1.0)
    whole.forget("t/j")
    assert not whole.broadcast


def test_nothing_is_kept_of_lost_senders_or_of_jobs_that_ended() -> None:
    whole = whole_jobs()
    for number in range(50):
        sender = f"app/{number}"
        Tables().split(10, 100).merge(20, 90).joined(whole, sender)
        whole.lose(sender)
    assert (whole._last, whole._before) == ({}, {})
    Tables().split(10, 100).merge(20, 90).joined(whole)
    whole.forget("t/j")
    tables = Tables().joined(whole)
    assert not tables.edges
    assert not tables.sinks
