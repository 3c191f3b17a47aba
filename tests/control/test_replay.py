"""A recording is decided again: the same bytes, on every machine, whatever the order of hashes."""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import FakeCluster, chain
from tests.control.scene import World
from trilithon.control.encoding import status_to_json
from trilithon.control.recorder import FORMAT, RecordingFolder
from trilithon.control.replay import last_statuses, replay, rounds_of
from trilithon.errors import FileUnreadable, InvalidRecording
from trilithon.model.job import Edge, Operator, Parallelism, Work
from trilithon.model.layout import Layout
from trilithon.model.snapshot import Snapshot
from trilithon.policies.registry import policy
from trilithon.policies.scene import Span
from trilithon.recording import files, parquet

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
RECORDING, DECISIONS = GOLDEN / "overload.parquet", GOLDEN / "overload.decisions.jsonl"


def overload(folder: Path, rounds_per_file: int = 360, rounds: int = 40) -> World:
    """Three jobs of two tenants; the load of one rises, and falls again."""
    recorder = RecordingFolder(folder / "recording", rounds_per_file)
    world = World(folder, FakeCluster(), recorder=recorder)
    for name, tenant in (("a", "ads"), ("b", "ads"), ("c", "search")):
        world.commands.apply(chain(name, tenant))
    world.rounds(5)
    world.cluster.rates["ads/a"] = 180.0
    world.rounds(rounds // 2)
    world.cluster.rates["ads/a"] = 10.0
    world.rounds(rounds - rounds // 2)
    recorder.close()
    return world


def lines(path: Path, name: str = "threshold", seed: int | None = None) -> list[str]:
    return [line for replayed in replay(path, policy(name), seed) for line in replayed.lines()]


def test_what_was_decided_is_decided_again_byte_for_byte(tmp_path: Path) -> None:
    world = overload(tmp_path)
    rounds = list(replay(tmp_path / "recording", policy("threshold")))
    assert len(rounds) == 45
    assert all(replayed.same for replayed in rounds)
    decided = [decision for replayed in rounds for decision in replayed.decisions]
    assert len(decided) > 10
    # What the journal has is among them.
    recorded = {row[0] for row in world.rows("SELECT id FROM decision")}
    assert recorded <= {decision.id for decision in decided}


def test_a_recording_of_version_0_1_is_replayed_and_not_compared() -> None:
    """Version 0.1 recorded actions instead of changes, and no feedback."""
    old = list(replay(GOLDEN / "overload-0.1.parquet", policy("threshold")))
    new = list(replay(RECORDING, policy("threshold")))
    assert {replayed.same for replayed in old} == {None}
    assert [replayed.decisions for replayed in old] == [replayed.decisions for replayed in new]
    assert sum(len(replayed.decisions) for replayed in old) > 10


def test_a_recording_in_several_files_is_one(tmp_path: Path) -> None:
    overload(tmp_path, rounds_per_file=7)
    files_found = sorted((tmp_path / "recording").iterdir())
    assert len(files_found) == 7
    assert all(replayed.same for replayed in replay(tmp_path / "recording", policy("threshold")))
    # Each can be replayed by itself: it begins with what its first round looks back on.
    for file in files_found:
        assert all(replayed.same for replayed in replay(file, policy("threshold")))


def test_other_parameters_decide_otherwise_and_are_not_compared(tmp_path: Path) -> None:
    overload(tmp_path)
    rounds = list(replay(tmp_path / "recording", policy("threshold", {"grow": 2.0})))
    assert {replayed.same for replayed in rounds} == {None}
    assert [line for replayed in rounds for line in replayed.lines()] != lines(
        tmp_path / "recording"
    )


def test_a_recording_is_a_series_to_whoever_does_not_care_for_rounds(tmp_path: Path) -> None:
    overload(tmp_path)
    [file] = (tmp_path / "recording").iterdir()
    series = files.load_recording(file)
    assert len(series) == 45
    again = tmp_path / "again.parquet"
    parquet.write_series(again, series.snapshots)
    # Without rounds, how jobs stood is told by the snapshots alone.
    rounds = list(replay(again, policy("threshold")))
    assert len(rounds) == 45
    assert {replayed.same for replayed in rounds} == {None}
    assert any(replayed.decisions for replayed in rounds)


def test_the_golden_recording_gives_the_golden_decisions() -> None:
    """If this fails after a change that is meant, `python -m
    tests.control.test_replay` writes both anew.
    """
    assert lines(RECORDING) == DECISIONS.read_text(encoding="utf-8").splitlines()
    assert all(replayed.same for replayed in replay(RECORDING, policy("threshold")))


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_the_order_of_hashes_changes_nothing(hash_seed: str) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.control.test_replay import lines\n"
        "sys.stdout.write('\\n'.join(lines(Path(sys.argv[1]))))"
    )
    output = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-c", code, str(RECORDING)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=True,
        capture_output=True,
    ).stdout
    assert output.decode() == DECISIONS.read_text(encoding="utf-8").rstrip("\n")


def test_a_clock_that_was_set_back_can_be_replayed(tmp_path: Path) -> None:
    recorder = RecordingFolder(tmp_path / "recording")
    world = World(tmp_path, FakeCluster(), recorder=recorder)
    world.commands.apply(chain("a"))
    world.cluster.rates["ads/a"] = 180.0
    world.rounds(6)
    world.cluster.now_s -= 3600.0
    world.rounds(12)
    recorder.close()
    rounds = list(replay(tmp_path / "recording", policy("threshold")))
    assert len(rounds) == 18
    assert all(replayed.same for replayed in rounds)


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable):
        rounds_of(tmp_path / "nowhere")
    with pytest.raises(FileUnreadable):
        rounds_of(tmp_path)
    (tmp_path / "letter.txt").write_text("Dear all,")
    with pytest.raises(InvalidRecording):
        rounds_of(tmp_path / "letter.txt")


def write_golden() -> None:
    with tempfile.TemporaryDirectory() as folder:
        overload(Path(folder))
        [file] = (Path(folder) / "recording").iterdir()
        GOLDEN.mkdir(exist_ok=True)
        shutil.copy(file, RECORDING)
    DECISIONS.write_text("\n".join(lines(RECORDING)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_golden()


def test_at_the_end_of_a_recording_a_job_is_as_its_last_round_says() -> None:
    """Advice asked for more instances of operators whose number the engine cannot change."""
    counting = Operator("count", Work(aggregate=(("n", "count(*)"),)), Parallelism(2, 1, 8))
    job = replace(chain("a", "ads"), operators=(counting,), edges=(Edge("in", "count"),), sinks=())
    snapshot = Snapshot.empty(10.0, Layout.build([job]), {job.id: job})
    plain = last_statuses([(snapshot, None)])[job.id]
    assert plain.fixed == {"count"}
    assert plain.spans == {"count": Span(1, 8)}
    recorded = replace(
        plain,
        fixed=frozenset(),
        spans={"count": Span(1, 4)},
        allocation=plain.allocation.rescaled({"count": 7}),
    )
    known = {"format": FORMAT, "statuses": [status_to_json(recorded)]}
    status = last_statuses([(snapshot, known), (snapshot, None)])[job.id]
    assert (status.fixed, status.spans) == (frozenset(), {"count": Span(1, 4)})
    assert status.allocation == plain.allocation
