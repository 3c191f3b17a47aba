"""Owns the JVM parts: fetched once, by exact version, and checked against the sums in `jars.toml`.

Ivy, which is among PySpark's own jars, does the fetching; no Maven is needed. Every jar is named in
`jars.toml`, so nothing is resolved and nothing else can come along. A group of jars is one folder whose
name carries a digest of its list: it appears by a rename when every file in it is right, and a new
version of the list means a new folder.
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
LIMIT_S = 900.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Jar:
    """One file, by its coordinates and its sum."""

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
def parts() -> Mapping[str, tuple[Jar, ...]]:
    """The jars of each group."""
    text = (resources.files("trilithon.engines.spark") / "jars.toml").read_text(encoding="utf-8")
    return {
        group: tuple(_jar(name, total) for name, total in jars.items())
        for group, jars in tomllib.loads(text).items()
    }


def _jar(coordinates: str, sha256: str) -> Jar:
    organisation, name, version = coordinates.split(":")
    return Jar(organisation, name, version, sha256)


def jars(
    group: str,
    progress: Progress = lambda _: None,
    *,
    wanted: tuple[Jar, ...] | None = None,
    folder: Path | None = None,
) -> list[Path]:
    """The files of a group, fetched if they are not there. Without a need there is no network."""
    wanted = parts()[group] if wanted is None else wanted
    base = (folders.cache() if folder is None else folder) / "jars"
    target = base / f"{group}-{_digest(wanted)}"
    if not wrong(target, wanted):
        return [target / jar.file for jar in wanted]
    with _alone(base):
        # Somebody else may have fetched them while this process waited.
        if wrong(target, wanted):
            _fetch(group, wanted, target, progress)
    return [target / jar.file for jar in wanted]


def wrong(folder: Path, wanted: tuple[Jar, ...]) -> list[str]:
    """The files that are missing, differ from their sum or do not belong into a folder."""
    found = {path.name: path for path in folder.glob("*")}
    expected = {jar.file: jar.sha256 for jar in wanted}
    return sorted(
        name
        for name in {*found, *expected}
        if name not in found or name not in expected or _sha256(found[name]) != expected[name]
    )


def java() -> Path:
    """The program that runs the parts."""
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
def _alone(base: Path) -> Iterator[None]:
    """One process at a time, and nothing left over from one before."""
    with folders.locked(base, "cache", "TRILITHON_CACHE"):
        for leftover in base.glob(".fetch-*"):  # of a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def _fetch(group: str, wanted: tuple[Jar, ...], target: Path, progress: Progress) -> None:
    """Fetches into a folder of its own, checks, and only then gives it its name."""
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=target.parent))
    try:
        arrived = work / "jars"
        arrived.mkdir()
        told = _ivy(group, wanted, work, arrived, progress)
        _check(group, wanted, arrived, told)
        if target.exists():  # a damaged one
            target.rename(work / "damaged")
        arrived.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(f"{group}: {len(wanted)} jars in {target}")


def _check(group: str, wanted: tuple[Jar, ...], arrived: Path, told: str) -> None:
    if absent := [jar for jar in wanted if not (arrived / jar.file).exists()]:
        jar, reason = _first_trouble(told, absent)
        raise PartsMissing(
            f"A jar of the {group} cannot be fetched, {jar}: {reason}.",
            f"Check the network, or name the Ivy settings of your mirror in {IVY_SETTINGS}.",
        )
    if bad := wrong(arrived, wanted):
        raise PartsMissing(
            f"{bad[0]}, fetched for the {group}, is not what it should be: its SHA-256 sum differs.",
            "Nothing of it was kept; try again, and if it happens again ask who runs your mirror.",
        )


def _first_trouble(told: str, absent: list[Jar]) -> tuple[Jar, str]:
    """Ivy keeps nothing if one jar is missing: which it was, and why, stands in what it said."""
    network = r"\b(UnknownHost\w*|Connect\w*Exception|Connection \w+|\w*Timeout\w*|SSL\w*)\b"
    if refused := re.search(network, told):
        return absent[0], f"the registry is not reached ({refused.group(1)})"
    for jar in absent:
        if f"{jar.name};{jar.version}: not found" in told:
            return jar, "the registry does not have it"
    return absent[0], "Ivy ended without it"


def _ivy(group: str, wanted: tuple[Jar, ...], work: Path, arrived: Path, progress: Progress) -> str:
    """Runs Ivy once for the whole group; what it said."""
    module = work / "ivy.xml"
    module.write_text(_module(group, wanted), encoding="utf-8")
    settings = os.environ.get(IVY_SETTINGS)
    command = [
        str(java()), "-Xmx256m", "-cp", str(_ivy_jar()), "org.apache.ivy.Main",
        *(("-settings", settings) if settings else ()),
        "-ivy", str(module), "-cache", str(work / "cache"),
        # Some jars are of the type "bundle"; without a configuration, jars of tests come along.
        "-types", "jar", "bundle", "-confs", "default",
        "-retrieve", f"{arrived}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    progress(f"{group}: fetching {len(wanted)} jars")
    told = []
    with subprocess.Popen(  # noqa: S603 - the JDK's own java
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        try:
            count = 0
            for line in process.stdout or ():
                told.append(line)
                if came := re.search(r"\[SUCCESSFUL ] \S+?#(\S+?);(\S+?)!", line):
                    count += 1
                    progress(f"{group}: {count}/{len(wanted)} {came.group(1)} {came.group(2)}")
        except BaseException:
            process.kill()
            raise
        finally:
            limit.cancel()
    return "".join(told)


def _module(group: str, wanted: tuple[Jar, ...]) -> str:
    """What Ivy is asked for: each jar by itself, without what it depends on."""
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} "
        f'rev={quoteattr(jar.version)} transitive="false" conf="default->master"/>'
        for jar in wanted
    )
    return (
        f'<ivy-module version="2.0">\n  <info organisation="trilithon" module={quoteattr(group)}/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n</ivy-module>\n"
    )


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    found = (
        []
        if spec is None or spec.origin is None
        else Path(spec.origin).parent.glob("jars/ivy-*.jar")
    )
    for path in found:
        return path
    raise PartsMissing(
        "PySpark's jars are not there, and one of them is the program that fetches.",
        "Install pyspark anew.",
    )
