"""What a path of a checkpoint can do in any file system, and the one of paths on this machine.

`OSError` is what fails, `FileNotFoundError` what is not there, whichever file system it is in.
"""

import shutil
from collections.abc import Iterator
from pathlib import PosixPath
from typing import Protocol, Self


class FilePath(Protocol):
    """What reading a checkpoint takes: methods of `pathlib.Path`."""

    @property
    def name(self) -> str: ...

    def __truediv__(self, name: str, /) -> Self: ...

    def with_name(self, name: str, /) -> Self: ...

    def exists(self) -> bool: ...

    def is_dir(self) -> bool: ...

    def iterdir(self) -> Iterator[Self]: ...

    def read_text(self, encoding: str, /) -> str: ...

    def write_text(self, text: str, encoding: str, /) -> int: ...

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None: ...

    def unlink(self, *, missing_ok: bool) -> None: ...


class CheckpointPath(FilePath, Protocol):
    """What keeping checkpoints takes besides: whole folders are copied, renamed and deleted."""

    def rename(self, target: Self, /) -> object:
        """Gives a folder another name, at which nothing is: in one step, or not at all."""

    def copy_tree(self, target: Self, /) -> None:
        """Copies a folder with everything in it to a path at which nothing is."""

    def delete_tree(self) -> None:
        """Deletes a folder with everything in it, if it exists."""

    def holds(self, path: Self, /) -> bool:
        """Whether a path made of this one is below it, and no link leads elsewhere."""


class LocalPath(PosixPath):
    """A path on this machine."""

    def copy_tree(self, target: Self, /) -> None:
        shutil.copytree(self, target)

    def delete_tree(self) -> None:
        shutil.rmtree(self, ignore_errors=True)

    def holds(self, path: Self, /) -> bool:
        return path.resolve() == self.resolve() / path.relative_to(self)


def files_below(folder: FilePath) -> Iterator[FilePath]:
    """The files in a folder and in those below it; none if it does not exist."""
    if not folder.exists():
        return
    for path in folder.iterdir():
        if path.is_dir():
            yield from files_below(path)
        else:
            yield path
