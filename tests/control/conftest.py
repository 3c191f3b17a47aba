"""Journals of tests lie in memory where the system has a place for that: they sync after every
write, and a test that kills a process does not need a disk.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.scene import World

MEMORY = Path("/dev/shm")  # noqa: S108 - only what is deleted after the test


def quick_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="trilithon-", dir=MEMORY if MEMORY.is_dir() else None))


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    folder = quick_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world_ = World(tmp_path)
    yield world_
    assert world_.journal is not None
    world_.journal.close()
