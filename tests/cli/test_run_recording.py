"""`run --record`: what was seen of a run can be measured and decided on again."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.cli.test_commands import Terminal
from tests.cluster import FakeCluster, chain
from tests.recording.test_recordings import SMALL
from trilithon.cli.run_command import draw_run, watch
from trilithon.contract.watch import Watcher
from trilithon.errors import FileUnwritable, TrilithonError
from trilithon.model.allocation import initial
from trilithon.recording.snapshot_folder import SnapshotFolder
from trilithon.recording.snapshots import snapshot_from_json

JOB = chain()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """A job under load, ten of whose seconds pass between two looks."""
    cluster = FakeCluster(auto_s=10.0)
    cluster.rates[JOB.id] = 250.0
    cluster.submit(JOB, initial(JOB))
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("time.time", lambda: cluster.now_s)
    looks = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(looks)))
    return Watcher(cluster)


def test_a_recorded_run_is_advised_and_replayed(
    watcher: Watcher, terminal: Terminal, tmp_path: Path
) -> None:
    folder = tmp_path / "recorded"
    with SnapshotFolder(folder, snapshots_per_file=4) as recorder:
        watch(watcher, 10.0, recorder)
    assert len(list(folder.glob("*.parquet"))) == 3
    (job,) = terminal.json("advise", str(folder))["jobs"]
    assert (job["job"], job["met"]) == (JOB.id, False)
    rounds = terminal.json("replay", str(folder), "--policy", "threshold")
    assert len(rounds) >= 9
    assert any(one["decisions"] for one in rounds)
    assert terminal.json("advise", str(folder), "--policy", "threshold") is not None


def test_without_a_terminal_a_run_prints_lines_and_a_summary_of_the_whole_run(
    watcher: Watcher, capsys: pytest.CaptureFixture[str]
) -> None:
    """It printed nothing until the end, and then its last second, in which all was zero."""
    (job,) = watch(watcher, 30.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert all(f"s  {JOB.id}  in " in printed for printed in lines)
    assert "in 250/s" in lines[-1]
    run = job["run"]
    assert run["arrived"] == 250 * 10 * round(run["seconds"] / 10 + 1)
    assert 0 < run["written"] < run["arrived"]
    assert run["p95_ms"] > run["p50_ms"] > 0
    assert run["intent_met"] < 1
    draw_run([job], Console())
    heading, columns, row = capsys.readouterr().out.splitlines()[:3]
    assert heading.startswith("The whole run of ")
    assert columns.split()[:4] == ["job", "state", "in", "out"]
    assert row.split()[:3] == [JOB.id, "running", str(run["arrived"])]


def test_on_a_terminal_a_run_leaves_nothing_behind_but_the_summary(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last live table stayed, and the same table followed as the answer."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr("trilithon.cli.run_command.message_console", lambda: screen)
    watch(watcher, 10.0)
    written = screen.file.getvalue()  # type: ignore[attr-defined]
    assert JOB.id in written
    # What was on the line before is gone.
    assert written.startswith("\r\x1b[K")
    # The last thing written goes up over the table and erases it line by line.
    assert JOB.id not in written[written.rindex("\x1b[1A\x1b[2K") :]


def test_a_full_disk_ends_the_recording_and_not_the_run(
    watcher: Watcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    recorder = SnapshotFolder(tmp_path)
    monkeypatch.setattr(recorder, "write", full)
    assert watch(watcher, 5.0, recorder)[0]["job"] == JOB.id


def test_a_snapshot_is_recorded_once(tmp_path: Path) -> None:
    snapshot = snapshot_from_json(SMALL)
    with SnapshotFolder(tmp_path) as recorder:
        recorder.write(snapshot)
        recorder.write(snapshot)
    (file,) = tmp_path.glob("*.parquet")
    assert file.name.startswith("snapshots-")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileUnwritable) as refused:
        SnapshotFolder(tmp_path / "file" / "below")
    assert isinstance(refused.value, TrilithonError)
