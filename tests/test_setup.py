"""The repository sets itself up: what the lock file must be, and
what set-up says when it cannot.
"""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tools import bootstrap, lock

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=~! ]", requirement, maxsplit=1)[0].lower().replace(".", "-")


def test_spark_is_pinned_exactly() -> None:
    assert "pyspark==4.3.0" in PROJECT["project"]["dependencies"]
    (locked,) = [p for p in LOCK["package"] if p["name"] == "pyspark"]
    assert locked["version"] == "4.3.0"


def test_the_lock_file_is_of_these_dependencies() -> None:
    """If this fails, `make lock` resolves them anew."""
    (ours,) = [p for p in LOCK["package"] if p["name"] == "trilithon"]
    locked = {d["name"]: d.get("specifier", "") for d in ours["metadata"]["requires-dist"]}
    wanted = PROJECT["project"]["dependencies"]
    assert set(locked) == {_name(requirement) for requirement in wanted}
    for requirement in wanted:
        assert requirement.endswith(locked[_name(requirement)])
    dev = {d["name"] for d in ours["metadata"]["requires-dev"]["dev"]}
    assert dev == {_name(requirement) for requirement in PROJECT["dependency-groups"]["dev"]}


def test_the_lock_file_names_no_registry() -> None:
    text = (ROOT / "uv.lock").read_text()
    hosts = set(re.findall(r"https?://([^/\"]+)", text))
    assert hosts == {"index.invalid"}
    assert lock.without_addresses(text) == text
    assert text.count("sha256:") > 100


def test_addresses_are_taken_out_and_file_names_kept() -> None:
    before = (
        'source = { registry = "https://a.example/simple" }\nurl = "https://b.example/x/y-1.whl"'
    )
    after = lock.without_addresses(before)
    assert "example" not in after
    assert "/y-1.whl" in after


def test_without_a_jdk_and_without_apt_setup_stops_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trilithon.engines.spark.jdk.find_jdk", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="No JDK 17 or 21 was found") as stopped:
        bootstrap.ensure_jdk()
    assert str(stopped.value).count("\n") == 0


@pytest.mark.parametrize(
    ("ensure", "package"),
    [(bootstrap.ensure_jdk, "openjdk-17-jdk-headless"), (bootstrap.ensure_venv, "python3-venv")],
)
def test_on_debian_as_root_what_is_missing_is_installed(
    monkeypatch: pytest.MonkeyPatch, ensure: Callable[[], None], package: str
) -> None:
    jdks = iter([None, Path("/jdk")])
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr("trilithon.engines.spark.jdk.find_jdk", lambda: next(jdks))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(bootstrap, "run", lambda *command, **_: commands.append(command))
    ensure()
    assert ("apt-get", "update", "-qq") in commands
    assert any(command[:2] == ("apt-get", "install") and package in command for command in commands)


def test_promtool_is_taken_out_of_debians_package_and_nothing_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Or it is left out, and the tests go on."""
    (tmp_path / "bin").mkdir()
    commands: list[str] = []

    def run(*command: str | Path, folder: Path = ROOT, **_: object) -> str:
        commands.append(" ".join(map(str, command[:2])))
        if "download" in command:
            (folder / "prometheus.deb").touch()
        if command[0] == "dpkg-deb":
            program = Path(command[-1]) / "usr" / "bin" / "promtool"
            program.parent.mkdir(parents=True)
            program.write_text("a program")
        return ""

    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: None if name == "promtool" else f"/{name}")
    monkeypatch.setattr(bootstrap, "run", lambda *_, **__: bootstrap.stop("no network"))
    bootstrap.ensure_promtool()
    assert not (tmp_path / "bin" / "promtool").exists()
    monkeypatch.setattr(bootstrap, "run", run)
    bootstrap.ensure_promtool()
    assert (tmp_path / "bin" / "promtool").read_text() == "a program"
    assert "apt-get download" in commands
    assert "apt-get install" not in commands
    commands.clear()
    bootstrap.ensure_promtool()
    assert commands == []


@pytest.mark.parametrize("folder", ["src", "tests", "tools", "bench", "examples"])
def test_code_is_left_unformatted_only_with_a_reason(folder: str) -> None:
    """Written as `# fmt: skip  # the reason`."""
    for path in (ROOT / folder).rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.rstrip().endswith(f"# fmt: {'skip'}"):
                pytest.fail(f"{path.relative_to(ROOT)} has no reason for: {line.strip()}")


def test_the_hooks_run_what_make_check_runs() -> None:
    """Formatting is checked by the one and done by the other."""
    hooks = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    programs = [hook["entry"].removesuffix(" --force-exclude") for hook in hooks]
    rule = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None
    checks = re.findall(r"\$\(BIN\)/(.*)", rule.group(1))
    assert [
        f".venv/bin/{check.replace(' --check', '').removesuffix(' .')}" for check in checks
    ] == programs
