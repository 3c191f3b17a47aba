"""What is read of a checkpoint, and what a batch that failed left there."""

from pathlib import Path

from trilithon.engines.spark.checkpoint import clear_leftovers, is_committed, last_committed


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
