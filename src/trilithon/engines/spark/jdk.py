"""Finds a JDK that Spark supports. Standard library only: set-up runs it first."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

SUPPORTED = (17, 21)
MISSING = (
    "No JDK 17 or 21 was found in JAVA_HOME, on the PATH or under /usr/lib/jvm: install one "
    "(on Debian: apt-get install openjdk-17-jdk-headless) or set JAVA_HOME to it."
)


def find_jdk(candidates: Iterable[Path] | None = None) -> Path | None:
    """The home of the first supported JDK, or None. A JRE, which has no `javac`, does not count."""
    for home in candidates if candidates is not None else _candidates():
        if (home / "bin" / "javac").is_file() and _major(home) in SUPPORTED:
            return home
    return None


def _candidates() -> Iterator[Path]:
    if java_home := os.environ.get("JAVA_HOME"):
        yield Path(java_home)
    if on_path := shutil.which("javac"):
        yield Path(on_path).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"))
    yield from sorted(Path("/Library/Java/JavaVirtualMachines").glob("*/Contents/Home"))


def _major(home: Path) -> int | None:
    """The feature release of a JDK, from its `release` file or else from `javac -version`."""
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    version = re.search(r'JAVA_VERSION="(\d+)', text)
    if version is None:
        try:
            answer = subprocess.run(  # noqa: S603 - the program is the candidate itself
                [home / "bin" / "javac", "-version"],
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        version = re.search(r"javac (\d+)", answer.stdout + answer.stderr)
    return int(version.group(1)) if version else None
