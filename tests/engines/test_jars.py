"""Downloading the jars, with the real Ivy from registries that are folders: without a network."""

import hashlib
import multiprocessing
from pathlib import Path

import pytest

from trilithon import folders
from trilithon.engines.spark import jars as module
from trilithon.engines.spark.jars import IVY_SETTINGS, Jar, fetch_jars, invalid_files, jar_groups
from trilithon.errors import FileUnwritable, PartsMissing

SETTINGS = """\
<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers>
    <filesystem name="here" m2compatible="true">
      <ivy pattern="{0}/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
      <artifact pattern="{0}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
    </filesystem>
  </resolvers>
</ivysettings>
"""
POM = """\
<project><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>{0}</artifactId><version>1.0</version>
<packaging>{1}</packaging>
<dependencies><dependency><groupId>org.example</groupId><artifactId>absent</artifactId>
<version>9</version></dependency></dependencies></project>
"""


class Registry:
    """A Maven repository in a folder, and a cache to fetch into."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder / "registry", folder / "cache"
        self.folder.mkdir()
        self.settings = folder / "settings.xml"
        self.settings.write_text(SETTINGS.format(self.folder))

    def publish(self, name: str, content: bytes, packaging: str = "jar") -> Jar:
        place = self.folder / "org" / "example" / name / "1.0"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}-1.0.pom").write_text(POM.format(name, packaging))
        (place / f"{name}-1.0.jar").write_bytes(content)
        return Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest())

    def fetch(self, *wanted: Jar) -> list[Path]:
        return fetch_jars("thing", wanted=wanted, folder=self.cache)

    def kept(self) -> list[str]:
        return sorted(path.name for path in (self.cache / "jars").glob("[!l]*"))


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry(tmp_path)
    monkeypatch.setenv(IVY_SETTINGS, str(made.settings))
    return made


def test_every_part_is_named_exactly_and_has_a_sum() -> None:
    assert [len(jar_groups()[group]) for group in (module.CONNECTOR, module.BROKER)] == [4, 46]
    for group in jar_groups().values():
        assert len({jar.file for jar in group}) == len(group)
        assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in group)
    assert "spark-sql-kafka-0-10_2.13-4.2.0.jar" in [jar.file for jar in jar_groups()["connector"]]


def test_jars_come_once_without_what_they_depend_on_and_then_need_no_network(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = (registry.publish("one", b"1"), registry.publish("two", b"22", packaging="bundle"))
    said: list[str] = []
    found = fetch_jars("thing", said.append, wanted=wanted, folder=registry.cache)
    assert [path.read_bytes() for path in found] == [b"1", b"22"]
    assert said[0] == "thing: downloading 2 jars"
    assert "thing: 2/2 two 1.0" in said
    monkeypatch.setattr(module, "_run_ivy", lambda *_: pytest.fail("there was no need to fetch"))
    assert registry.fetch(*wanted) == found


def test_a_jar_with_another_sum_is_refused_in_one_sentence_and_not_kept(registry: Registry) -> None:
    good = registry.publish("one", b"1")
    registry.publish("one", b"something else")
    with pytest.raises(PartsMissing, match=r"^PARTS_MISSING: one-1.0.jar, .* SHA-256 sum differs"):
        registry.fetch(good)
    assert registry.kept() == []


def test_a_jar_that_the_registry_lacks_is_named(registry: Registry) -> None:
    here = registry.publish("one", b"1")
    absent = Jar("org.example", "two", "2.0", here.sha256)
    with pytest.raises(PartsMissing) as refused:
        registry.fetch(here, absent)
    assert refused.value.message == (
        "A jar of the thing cannot be downloaded, org.example:two:2.0: "
        "the registry does not have it."
    )
    assert IVY_SETTINGS in refused.value.hint
    assert registry.kept() == []


def test_a_registry_that_is_not_reached_is_said(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = tmp_path / "away.xml"
    away.write_text(
        '<ivysettings><settings defaultResolver="away"/><resolvers>'
        '<ibiblio name="away" m2compatible="true" root="http://127.0.0.1:9/"/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv(IVY_SETTINGS, str(away))
    with pytest.raises(PartsMissing, match="the registry cannot be reached"):
        registry.fetch(Jar("org.example", "one", "1.0", "00"))


def test_a_damaged_or_foreign_file_in_the_cache_is_found_and_mended(registry: Registry) -> None:
    wanted = (registry.publish("one", b"1"),)
    (path,) = registry.fetch(*wanted)
    path.write_bytes(b"damaged")
    (path.parent / "extra.jar").touch()
    assert invalid_files(path.parent, wanted) == ["extra.jar", "one-1.0.jar"]
    assert registry.fetch(*wanted) == [path]
    assert path.read_bytes() == b"1"
    assert registry.kept() == [path.parent.name]


def test_what_a_killed_process_left_is_removed(registry: Registry) -> None:
    (registry.cache / "jars" / ".fetch-dead" / "jars").mkdir(parents=True)
    registry.fetch(registry.publish("one", b"1"))
    assert not list((registry.cache / "jars").glob(".fetch-*"))


def test_two_processes_that_want_the_same_fetch_it_once(registry: Registry) -> None:
    one = registry.publish("one", b"1")
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        output = pool.starmap(_fetch_and_log, [(one, registry.cache)] * 2)
    assert sorted(map(len, output)) == [0, 3]


def _fetch_and_log(jar: Jar, cache: Path) -> list[str]:
    said: list[str] = []
    fetch_jars("thing", said.append, wanted=(jar,), folder=cache)
    return said


def test_a_cache_that_cannot_be_written_is_said(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(FileUnwritable, match="TRILITHON_CACHE"):
        registry.fetch(Jar("org.example", "one", "1.0", "00"))


def test_without_a_jdk_one_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_jdk", lambda: None)
    with pytest.raises(PartsMissing, match="No JDK 17 or 21"):
        module.java()


def test_folders_follow_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRILITHON_CACHE", "TRILITHON_STATE", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders.cache() == tmp_path / ".cache/trilithon"
    assert folders.state() == tmp_path / ".local/state/trilithon"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert folders.cache() == tmp_path / "c/trilithon"
    assert folders.state() == tmp_path / ".local/state/trilithon"
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "s"))
    assert folders.state() == tmp_path / "s"
