"""Loads Python jobs for the engine host: only from folders that are named, each file in a process
of its own.

The process is a child of the host, without the host's environment. A file that hangs, exits or
fills its memory ends that process, not the jobs that run. What comes back is data.

    python -m trilithon.engines.python_jobs FILE        the child: prints the jobs as JSON
"""

import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

from trilithon.errors import InvalidJob, Problem, TrilithonError
from trilithon.python_files import jobs_of_python
from trilithon.spec.dump import dump_job

LOADS_S: Final = 30.0
# A job file has at most 256 KiB; a Python file may define several.
MAX_BYTES: Final = 2 * 2**20
MAX_MEMORY: Final = 2 * 2**30
NOT_ALLOWED: Final = "PYTHON_NOT_ALLOWED"
FAILED: Final = "PYTHON_FAILED"
# What a child needs to find Python's modules; nothing else of the host's environment.
_KEPT: Final = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "TZ")


def load_python(file: str, folders: Sequence[str], timeout_s: float = LOADS_S) -> dict[str, Any]:
    """The jobs that a file defines (`jobs`), or why they cannot be loaded (`problems`)."""
    try:
        path = allowed_file(Path(file), [Path(folder) for folder in folders])
        return _in_child(path, timeout_s)
    except InvalidJob as error:
        return {"problems": [asdict(problem) for problem in error.problems]}


def allowed_file(file: Path, folders: Sequence[Path]) -> Path:
    """The file behind a name, links followed, if it is in one of the folders and only its owner or
    the administrator can change it.
    """
    if not any(file.is_relative_to(folder) for folder in folders):
        raise _refused(f"{file} is in none of the folders for Python jobs.", "Ask for its folder.")
    try:
        path = file.resolve(strict=True)
        roots = [folder.resolve(strict=True) for folder in folders if folder.is_dir()]
    except OSError as error:
        raise _refused(f"{file} cannot be read: {error.strerror}.", "Check the name.") from None
    root = next((root for root in roots if path.is_relative_to(root)), None)
    if root is None:
        raise _refused(f"{file} is a link out of its folder.", "Put the file itself there.")
    for place in (path, *path.parents[: len(path.relative_to(root).parts)]):
        status = place.stat()
        if status.st_mode & stat.S_IWOTH or status.st_uid not in {os.geteuid(), 0}:
            message = f"Others can change {place}: it is writable by everybody, or not yours."
            raise _refused(message, f"chown it, and chmod o-w {place}.")
    return path


def _refused(message: str, hint: str) -> InvalidJob:
    return InvalidJob([Problem(NOT_ALLOWED, "file", message, hint)])


def _in_child(path: Path, timeout_s: float) -> dict[str, Any]:
    # Not the folder of the file: it would shadow the modules of Python itself.
    command = [sys.executable, "-P", "-m", "trilithon.engines.python_jobs", str(path)]
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    # Whatever the file prints goes to the disk: the host's memory is for its jobs.
    with tempfile.TemporaryFile() as printed:
        try:
            child = subprocess.run(  # noqa: S603 - ourselves, and a file of the administrator's
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=printed,
                timeout=timeout_s,
                env=environment,
                cwd=path.parent,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _failed(path, f"It ran for more than {timeout_s:g} s.") from None
        if child.returncode != 0 or len(child.stdout) > MAX_BYTES:
            code = child.returncode
            why = f"Its process ended with {code}" if code else "Too much data"
            raise _failed(path, f"{why}. {_last_line(printed)}".strip())
    answer: dict[str, Any] = json.loads(child.stdout)
    return answer


def _last_line(printed: IO[bytes]) -> str:
    printed.seek(max(0, printed.seek(0, os.SEEK_END) - 1000))
    return "".join(printed.read().decode(errors="replace").strip().splitlines()[-1:])


def _failed(path: Path, message: str) -> InvalidJob:
    hint = "Run it with Python to see more."
    return InvalidJob([Problem(FAILED, "file", message, hint, str(path))])


def main(file: str) -> None:
    """Runs the file. Whatever it prints goes to standard error: standard output is the answer's."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(2, 1)
        data: dict[str, Any]
        try:
            jobs = [job for job, _ in jobs_of_python(Path(file))]
            data = {"jobs": [dump_job(job) for job in jobs]}
        except InvalidJob as error:
            data = {"problems": [asdict(problem) for problem in error.problems]}
        except TrilithonError as error:
            problem = Problem(error.code, "file", error.message, error.hint, file)
            data = {"problems": [asdict(problem)]}
        json.dump(data, answer)


if __name__ == "__main__":
    main(sys.argv[1])
