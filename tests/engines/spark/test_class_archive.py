"""The archive of classes: made from what a JVM recorded, used by the next, gone with its jars."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from trilithon.engines.spark import class_archive
from trilithon.engines.spark.class_archive import ClassArchive
from trilithon.engines.spark.jdk import find_jdk

JDK = find_jdk()
assert JDK is not None
JAVA = str(JDK / "bin" / "java")
SOURCE = "public class Small { public static void main(String[] a) { System.out.print(1); } }"


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    (folder / "Small.java").write_text(SOURCE)
    tools = JDK / "bin" if JDK else Path()
    for command in (["javac", "Small.java"], ["jar", "cf", "small.jar", "Small.class"]):
        tool = [str(tools / command[0]), *command[1:]]
        subprocess.run(tool, cwd=folder, check=True)  # noqa: S603 - the JDK's own
    return folder / "small.jar"


def archive(tmp_path: Path, jar: Path) -> ClassArchive:
    assert JDK is not None
    return ClassArchive(JDK, [jar], tmp_path / "classes")


def run(jar: Path, *options: str) -> str:
    command = [JAVA, *options, "-cp", str(jar), "Small"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return process.stdout


def test_a_jvm_loads_from_the_archive_what_another_has_recorded(
    tmp_path: Path, jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = archive(tmp_path, jar)
    assert classes.java_options() == ""
    run(jar, classes.java_options(record=True))
    command = [JAVA, "-Xmx64m", "-cp", str(jar), "Small"]
    monkeypatch.setattr(class_archive, "command_line", lambda _: command)
    assert classes.make(1, threading.Event())
    assert [path.name for path in classes.folder.iterdir()] == [classes.path.name]
    options = classes.java_options(record=True).split()
    printed = run(jar, "-Xmx64m", *options, "-Xlog:class+load")
    assert "Small source: shared objects file" in printed
    # A second driver has nothing to make.
    assert classes.make(1, threading.Event())


def test_a_new_archive_replaces_those_that_were_not_used_for_longest(
    tmp_path: Path, jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = archive(tmp_path, jar)
    run(jar, classes.java_options(record=True))
    for day in range(1, 5):
        for name in (f"older{day}.jsa", f"older-{day}.classes"):
            (classes.folder / name).touch()
            used_s = time.time() - day * 100_000
            os.utime(classes.folder / name, (used_s, used_s))
    (classes.folder / "running-1.classes").touch()
    monkeypatch.setattr(class_archive, "command_line", lambda _: [JAVA, "-cp", str(jar)])
    assert classes.make(1, threading.Event())
    kept = {path.name for path in classes.folder.iterdir()}
    assert kept == {classes.path.name, "older1.jsa", "older2.jsa", "running-1.classes"}


def test_another_set_of_jars_has_another_archive(tmp_path: Path, jar: Path) -> None:
    classes = archive(tmp_path, jar)
    classes.folder.mkdir()
    classes.path.write_bytes(b"")
    assert "SharedArchiveFile" in classes.java_options()
    changed = tmp_path / "small.jar"
    changed.write_bytes(jar.read_bytes() + b"\n")
    assert archive(tmp_path, changed).java_options() == ""


def test_a_folder_whose_name_spark_would_split_has_no_archive(tmp_path: Path, jar: Path) -> None:
    assert archive(tmp_path / "a b", jar).java_options(record=True) == ""


def test_a_dump_that_fails_leaves_nothing(
    tmp_path: Path, jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = archive(tmp_path, jar)
    run(jar, classes.java_options(record=True))
    monkeypatch.setattr(class_archive, "command_line", lambda _: ["java", "-Xmx1k"])
    assert not classes.make(1, threading.Event())
    assert list(classes.folder.iterdir()) == []


def test_what_waits_for_jobs_ends_with_its_application(tmp_path: Path, jar: Path) -> None:
    classes = archive(tmp_path, jar)
    end = classes.make_when(lambda: False, driver=1)
    end()
    assert "class-archive" not in {thread.name for thread in threading.enumerate()}
