"""Finding a JDK that Spark runs on."""

from pathlib import Path

from trilithon.engines.spark.jdk import find_jdk


def jdk(folder: Path, version: str, compiler: bool = True) -> Path:
    (folder / "bin").mkdir(parents=True)
    if compiler:
        (folder / "bin" / "javac").touch()
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return folder


def test_the_first_supported_jdk_is_taken(tmp_path: Path) -> None:
    old = jdk(tmp_path / "old", "11.0.2")
    new = jdk(tmp_path / "new", "25")
    runtime = jdk(tmp_path / "jre", "17.0.1", compiler=False)
    good = jdk(tmp_path / "good", "17.0.15")
    better = jdk(tmp_path / "better", "21.0.1")
    assert find_jdk([tmp_path / "none", old, new, runtime, good, better]) == good
    assert find_jdk([better]) == better


def test_without_one_nothing_is_found(tmp_path: Path) -> None:
    assert find_jdk([tmp_path]) is None
    assert find_jdk([]) is None
