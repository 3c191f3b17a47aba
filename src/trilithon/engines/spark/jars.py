"""Downloads the jars that Trilithon needs, by exact version, and verifies their SHA-256 sums.

Ivy, one of PySpark's own jars, does the download; no Maven is needed. `jars.toml` lists every jar,
transitive ones included, so nothing is resolved and no other jar can come along. A group of jars is
one folder whose name has a digest of its list: the folder is renamed to that when every file in it
is verified, and a changed list means a new folder.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from trilithon import folders
from trilithon.engines.spark.jdk import MISSING, find_jdk
from trilithon.errors import PartsMissing

CONNECTOR = "connector"
BROKER = "broker"
IVY_SETTINGS = "TRILITHON_IVY_SETTINGS"
TIMEOUT_S = 900.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar: its Maven coordinates and its SHA-256 sum."""

    organisation: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}"


@cache
def jar_groups() -> Mapping[str, tuple[Jar, ...]]:
    """The jars of each group, from `jars.toml`."""
    text = (resources.files("trilithon.engines.spark") / "jars.toml").read_text(encoding="utf-8")
    return {
        group: tuple(_jar(name, sha256) for name, sha256 in jars.items())
        for group, jars in tomllib.loads(text).items()
    }


def _jar(coordinates: str, sha256: str) -> Jar:
    organisation, name, version = coordinates.split(":")
    return Jar(organisation, name, version, sha256)


def fetch_jars(
    group: str,
    progress: Progress = lambda _: None,
    *,
    wanted: tuple[Jar, ...] | None = None,
    folder: Path | None = None,
) -> list[Path]:
    """The files of a group; downloads them if they are missing or damaged."""
    wanted = jar_groups()[group] if wanted is None else wanted
    base = (folders.cache() if folder is None else folder) / "jars"
    target = base / f"{group}-{_digest(wanted)}"
    if not invalid_files(target, wanted):
        return [target / jar.file for jar in wanted]
    with _locked(base):
        # Another process may have downloaded them while this one waited for the lock.
        if invalid_files(target, wanted):
            _fetch(group, wanted, target, progress)
    return [target / jar.file for jar in wanted]


def invalid_files(folder: Path, wanted: tuple[Jar, ...]) -> list[str]:
    """The files that are missing, have another sum or do not belong in the folder."""
    files = {path.name: path for path in folder.glob("*")}
    expected = {jar.file: jar.sha256 for jar in wanted}
    return sorted(
        name
        for name in {*files, *expected}
        if name not in files or name not in expected or _sha256(files[name]) != expected[name]
    )


def java() -> Path:
    """The `java` of a supported JDK."""
    home = find_jdk()
    if home is None:
        raise PartsMissing(MISSING)
    return home / "bin" / "java"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(wanted: tuple[Jar, ...]) -> str:
    listed = "\n".join(f"{jar} {jar.sha256}" for jar in wanted)
    return hashlib.sha256(listed.encode()).hexdigest()[:12]


@contextmanager
def _locked(base: Path) -> Iterator[None]:
    """Admits one process at a time and removes leftovers of killed ones."""
    with folders.locked(base, "cache", "TRILITHON_CACHE"):
        for leftover in base.glob(".fetch-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def _fetch(group: str, wanted: tuple[Jar, ...], target: Path, progress: Progress) -> None:
    """Downloads into a temporary folder, verifies, and only then renames it to the target."""
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=target.parent))
    try:
        arrived = work / "jars"
        arrived.mkdir()
        output = _run_ivy(group, wanted, work, arrived, progress)
        _check(group, wanted, arrived, output)
        if target.exists():  # a damaged one
            target.rename(work / "damaged")
        arrived.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(f"{group}: {len(wanted)} jars in {target}")


def _check(group: str, wanted: tuple[Jar, ...], arrived: Path, output: str) -> None:
    if absent := [jar for jar in wanted if not (arrived / jar.file).exists()]:
        jar, reason = _failure_reason(output, absent)
        raise PartsMissing(
            f"A jar of the {group} cannot be downloaded, {jar}: {reason}.",
            f"Check the network, or set {IVY_SETTINGS} to the Ivy settings file of your mirror.",
        )
    if bad := invalid_files(arrived, wanted):
        raise PartsMissing(
            f"{bad[0]}, downloaded for the {group}, was rejected: its SHA-256 sum differs.",
            "Try again; if it happens again, ask the owner of your mirror.",
        )


def _failure_reason(output: str, absent: list[Jar]) -> tuple[Jar, str]:
    """Which jar failed and why, from Ivy's output: it keeps no jar at all if one is missing."""
    network = r"\b(UnknownHost\w*|Connect\w*Exception|Connection \w+|\w*Timeout\w*|SSL\w*)\b"
    if refused := re.search(network, output):
        return absent[0], f"the registry cannot be reached ({refused.group(1)})"
    for jar in absent:
        if f"{jar.name};{jar.version}: not found" in output:
            return jar, "the registry does not have it"
    return absent[0], "Ivy did not deliver it"


def _run_ivy(
    group: str, wanted: tuple[Jar, ...], work: Path, arrived: Path, progress: Progress
) -> str:
    """Runs Ivy once for the whole group; returns its output."""
    module = work / "ivy.xml"
    module.write_text(_module(group, wanted), encoding="utf-8")
    settings = os.environ.get(IVY_SETTINGS)
    program = [str(java()), "-Xmx256m", "-cp", str(_ivy_jar()), "org.apache.ivy.Main"]
    options = ["-settings", settings] if settings else []
    options += ["-ivy", str(module), "-cache", str(work / "cache")]
    # Some jars are of the type "bundle"; without a configuration, jars of tests come along.
    options += ["-types", "jar", "bundle", "-confs", "default"]
    options += ["-retrieve", f"{arrived}/[artifact]-[revision].[ext]"]
    progress(f"{group}: downloading {len(wanted)} jars")
    output = []
    with subprocess.Popen(  # noqa: S603 - the JDK's own java
        [*program, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        timer = threading.Timer(TIMEOUT_S, process.kill)
        timer.start()
        try:
            count = 0
            for line in process.stdout or ():
                output.append(line)
                if delivered := re.search(r"\[SUCCESSFUL ] \S+?#(\S+?);(\S+?)!", line):
                    count += 1
                    progress(
                        f"{group}: {count}/{len(wanted)} {delivered.group(1)} {delivered.group(2)}"
                    )
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    return "".join(output)


def _module(group: str, wanted: tuple[Jar, ...]) -> str:
    """Ivy's module file: each jar by itself, without its dependencies."""
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} "
        f'rev={quoteattr(jar.version)} transitive="false" conf="default->master"/>'
        for jar in wanted
    )
    return (
        '<ivy-module version="2.0">\n'
        f'  <info organisation="trilithon" module={quoteattr(group)}/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n</ivy-module>\n"
    )


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        for path in Path(spec.origin).parent.glob("jars/ivy-*.jar"):
            return path
    raise PartsMissing(
        "PySpark's jars are missing; one of them, Ivy, downloads the others.",
        "Install pyspark again.",
    )
