"""What is read of a checkpoint, and what a batch that failed left there."""

from pathlib import Path

import pytest

from trilithon.engines.spark.checkpoint import (
    clear_leftovers,
    delete_checkpoints,
    is_committed,
    last_committed,
)
from trilithon.engines.spark.file_path import LocalPath, files_below


def test_what_a_first_batch_left_is_deleted_and_offsets_never_are(tmp_path: Path) -> None:
    """Spark did not begin: "offsets should be empty on batch 0"."""
    clear_leftovers(tmp_path)
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for name in (".0.5f2c.tmp", "..0.5f2c.tmp.crc"):
        (offsets / name).touch()
    clear_leftovers(tmp_path)
    assert list(offsets.iterdir()) == []
    kept = {"0", ".0.crc", ".1.77aa.tmp"}
    for name in kept:
        (offsets / name).touch()
    clear_leftovers(tmp_path)
    assert {path.name for path in offsets.iterdir()} == kept


def test_the_last_commit_is_the_highest_number(tmp_path: Path) -> None:
    assert last_committed(tmp_path) is None
    commits = tmp_path / "commits"
    commits.mkdir()
    for name in ("9", "10", ".10.crc", ".11.77aa.tmp"):
        (commits / name).touch()
    assert last_committed(tmp_path) == 10
    assert is_committed(tmp_path, 10)
    assert not is_committed(tmp_path, 11)


@pytest.mark.parametrize(
    "name", ["..", "../../x", "ads/..", "ads", "ads/a/b", "ads/", "ads/linked"]
)
def test_only_folders_of_jobs_below_the_root_are_deleted(tmp_path: Path, name: str) -> None:
    root, elsewhere = LocalPath(tmp_path / "root"), tmp_path / "elsewhere" / "kept"
    (root / "ads" / "a" / "first").mkdir(parents=True)
    elsewhere.mkdir(parents=True)
    (root / "ads" / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    delete_checkpoints(root, name)
    assert (root / "ads" / "a" / "first").exists()
    assert elsewhere.exists()
    delete_checkpoints(root, "ads/a", "first")
    assert (root / "ads" / "a").exists()
    delete_checkpoints(root, "ads/a")
    assert not (root / "ads" / "a").exists()


def test_the_files_below_a_folder_are_those_of_all_folders_in_it(tmp_path: Path) -> None:
    assert list(files_below(tmp_path / "none")) == []
    for name in ("a", "b/c", "b/d/e"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    assert sorted(file.name for file in files_below(tmp_path)) == ["a", "c", "e"]
