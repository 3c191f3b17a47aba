"""The Java part: it builds, the same bytes each time, and its own tests pass."""

import re
from pathlib import Path

import pytest

from trilithon.engines.spark import probe
from trilithon.errors import ProbeNotBuilt

SOURCES = Path(__file__).resolve().parents[3] / "probe"


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


def test_what_does_not_compile_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "src" / "Broken.java"
    broken.parent.mkdir()
    broken.write_text("class Broken {")
    with pytest.raises(ProbeNotBuilt, match=r"Broken.java:1"):
        probe.build(tmp_path, tmp_path / "probe.jar")
    assert not (tmp_path / "probe.jar").exists()
