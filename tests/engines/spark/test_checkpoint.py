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


def folders(checkpoint: Path, offsets: set[str], commits: set[str]) -> None:
    for folder, names in (("offsets", offsets), ("commits", commits)):
        (checkpoint / folder).mkdir(exist_ok=True)
        for name in names:
            (checkpoint / folder / name).touch()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_a_first_batch_left_is_deleted_and_offsets_never_are(tmp_path: Path) -> None:
    """Spark did not begin: "offsets should be empty on batch 0". A JVM that was ending had failed
    to write both, and left a file of each: "commits should be empty on batch 0".
    """
    clear_leftovers(tmp_path)
    left = {".0.5f2c.tmp", "..0.5f2c.tmp.crc"}
    for commits in (set[str](), left, {"0", ".0.crc"}):
        folders(tmp_path, left, commits)
        clear_leftovers(tmp_path)
        assert names(tmp_path / "offsets") == names(tmp_path / "commits") == set()
    kept = {"0", ".0.crc", ".1.77aa.tmp"}
    folders(tmp_path, kept, kept)
    clear_leftovers(tmp_path)
    assert names(tmp_path / "offsets") == names(tmp_path / "commits") == kept


def test_a_commit_is_deleted_only_if_the_offsets_of_its_batch_are_all_that_lacks(
    tmp_path: Path,
) -> None:
    folders(tmp_path, {"7", "8"}, {"7", "8", ".8.crc", "9", ".9.crc"})
    clear_leftovers(tmp_path)
    assert names(tmp_path / "offsets") == {"7", "8"}
    assert names(tmp_path / "commits") == {"7", "8", ".8.crc"}
    # Somebody has deleted the offsets: Spark refuses to go on, and the engine does not begin anew.
    (tmp_path / "offsets" / "7").unlink()
    (tmp_path / "offsets" / "8").unlink()
    clear_leftovers(tmp_path)
    assert names(tmp_path / "commits") == {"7", "8", ".8.crc"}


def test_the_last_commit_is_the_highest_number(tmp_path: Path) -> None:
    assert last_committed(tmp_path) is None
    commits = tmp_path / "commits"
    commits.mkdir()
    for name in ("9", "10", ".10.crc", ".11.77aa.tmp"):
        (commits / name).touch()
    assert last_committed(tmp_path) == 10
    # A commit without its offsets stands for nothing.
    assert not is_committed(tmp_path, 10)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "10").touch()
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
