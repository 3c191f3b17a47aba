"""Gets the spec of a Python job from the engine host. The daemon itself neither opens nor runs the
file: it checks its name against the administrator's folders, and what comes back is data.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from trilithon.errors import InvalidJob, Problem, TooManyRequests
from trilithon.service.settings import ServiceSettings

# Loads a file in the host of a tenant: its name, and the folders that it must be in.
LoadPython = Callable[[str, str, Sequence[str]], Mapping[str, Any]]
# A file may run for half a minute, and each one that does occupies a thread of the daemon.
AT_ONCE: Final = 2
NOT_ALLOWED: Final = "PYTHON_NOT_ALLOWED"


class PythonJobs:
    """Loads Python jobs for one daemon, a few at a time."""

    def __init__(self, settings: ServiceSettings, load: LoadPython | None = None) -> None:
        self._settings, self.load = settings, load
        self._slots = threading.BoundedSemaphore(AT_ONCE)

    def spec(self, tenant: str, name: str, file: str) -> dict[str, Any]:
        """The spec of the job with this name that a file defines."""
        folders = self._settings.python_folders_of(tenant)
        load = self._check(tenant, name, file, folders)
        if not self._slots.acquire(blocking=False):
            raise TooManyRequests(f"{AT_ONCE} Python files are being loaded.", "Try again soon.")
        try:
            answer = load(tenant, file, folders)
        finally:
            self._slots.release()
        if problems := answer.get("problems"):
            raise InvalidJob([_placed(Problem(**problem)) for problem in problems], file)
        jobs = {(spec["tenant"], spec["name"]): spec for spec in answer["jobs"]}
        if (tenant, name) not in jobs:
            known = ", ".join(f"{t}/{n}" for t, n in jobs if t == tenant) or "none of this tenant"
            message = f"{file} does not define the job {tenant}/{name}."
            problem = Problem("NAME_MISMATCH", "name", message, f"It defines: {known}.")
            raise InvalidJob([problem], f"{tenant}/{name}")
        return dict(jobs[tenant, name])

    def _check(self, tenant: str, name: str, file: str, folders: Sequence[str]) -> LoadPython:
        """Refuses what needs no look at the file: the host follows links, and decides again."""
        message = hint = ""
        if self.load is None:
            message = "This daemon has no engine host, and loads no Python itself."
            hint = "Send the job's spec: `trilithon job apply FILE` runs the file on your machine."
        elif os.path.normpath(file) != file or file[:1] != "/" or file[-3:] != ".py":
            message = f"{file!r} is not the full name of a Python file."
            hint = "Write it from the root, without `..`, with .py at its end."
        elif not any(os.path.commonpath([file, folder]) == folder for folder in folders):
            message = f"The tenant {tenant!r} may not load {file!r}."
            hint = f"Its folders are: {', '.join(folders) or '(the administrator named none)'}."
        if message or self.load is None:
            problem = Problem(NOT_ALLOWED, "file", message, hint)
            raise InvalidJob([problem], f"{tenant}/{name}")
        return self.load


def _placed(problem: Problem) -> Problem:
    """A problem with its line in its message: a problem document has no place for it."""
    if problem.line is None:
        return problem
    message = f"line {problem.line}: {problem.message}"
    return Problem(problem.code, problem.path, message, problem.hint)
