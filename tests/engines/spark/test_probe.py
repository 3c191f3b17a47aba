"""The Java part: it builds, the same bytes each time, and its own tests pass."""

import re
from pathlib import Path

import pytest

from trilithon.engines.spark import probe
from trilithon.errors import ProbeNotBuilt

SOURCES = probe.SOURCES


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return probe.build(SOURCES, tmp_path_factory.mktemp("probe") / "probe.jar")


def test_the_probes_own_tests_pass(jar: Path) -> None:
    printed = probe.run_tests(SOURCES, jar)
    counted = re.search(r"(\d+) passed, (\d+) failed", printed)
    assert counted, printed
    assert int(counted.group(1)) > 50
    assert counted.group(2) == "0"


def test_the_jar_in_the_package_is_of_these_sources(jar: Path) -> None:
    """If this fails, `make probe` rebuilds it."""
    assert probe.JAR.read_bytes() == jar.read_bytes()


def test_a_jar_of_other_sources_is_told_from_one_of_these(jar: Path, tmp_path: Path) -> None:
    assert not probe.is_outdated(jar, SOURCES)
    assert not probe.is_outdated(jar, tmp_path)  # a package has no sources
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "New.java").write_text("final class New {}")
    assert probe.is_outdated(jar, tmp_path)
    (tmp_path / "broken.jar").write_bytes(b"half a jar")
    assert probe.is_outdated(tmp_path / "broken.jar", SOURCES)


def test_what_does_not_compile_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "src" / "Broken.java"
    broken.parent.mkdir()
    broken.write_text("class Broken {")
    with pytest.raises(ProbeNotBuilt, match=r"Broken.java:1"):
        probe.build(tmp_path, tmp_path / "probe.jar")
    assert not (tmp_path / "probe.jar").exists()
