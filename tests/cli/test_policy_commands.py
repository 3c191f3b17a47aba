"""`trilithon policy`: what there is, and a package of one's own that works."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from trilithon import plugins
from trilithon.cli.main import app
from trilithon.cli.policy_commands import package
from trilithon.errors import FileExists, NotFound, NotUnderstood
from trilithon.policies.dhalion import extensions
from trilithon.policies.dhalion.health_policies import ProvisioningPolicy

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "own-policy"


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["policy", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_and_show_name_every_policy_and_its_parts() -> None:
    listed = json.loads(run("list", "-o", "json"))
    assert {"dhalion", "henge", "latency"} <= set(listed["policies"])
    assert set(listed["health_policies"]) >= {"provisioning", "throughput_slo"}
    shown = json.loads(run("show", "dhalion", "-o", "json"))
    assert {
        key: value
        for row in shown["parameters"]
        if row["name"] == "window_s"
        for key, value in row.items()
        if key in {"name", "default"}
    } == {"name": "window_s", "default": 300.0}
    assert "back_pressure" in json.loads(run("show", "provisioning", "-o", "json"))["detectors"]
    part = json.loads(run("show", "relieve_instance", "-o", "json"))
    assert part["used_by"] == ["provisioning", "throughput_slo"]


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(NotFound, match="magic"):
        run("show", "magic")


def test_the_example_is_what_new_writes() -> None:
    for path, content in package("headroom").items():
        assert (EXAMPLE / path).read_text(encoding="utf-8") == content


def test_new_overwrites_nothing_and_refuses_bad_names(tmp_path: Path) -> None:
    run("new", "mine", "--into", str(tmp_path))
    with pytest.raises(FileExists):
        run("new", "mine", "--into", str(tmp_path))
    with pytest.raises(NotUnderstood):
        run("new", "My-Policy", "--into", str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def installed(folder: Path, name: str, source: Path) -> dict[str, str]:
    """An environment in which a package is installed, as `pip install -e` would."""
    info = folder / f"trilithon_{name}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: trilithon-{name}\nVersion: 0.1.0\n"
    )
    title = name.capitalize()
    (info / "entry_points.txt").write_text(
        f"[trilithon.health_policies]\n{name} = trilithon_{name}:{title}Policy\n"
        f"[trilithon.detectors]\nbusy = trilithon_{name}:BusyDetector\n"
    )
    paths = [str(folder), str(source / "src"), str(ROOT / "src"), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def trilithon(environment: dict[str, str], *words: str) -> str:
    """The standard output of a command in a process of its own."""
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "trilithon", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_package_is_found_by_its_entry_point_and_passes_its_test(tmp_path: Path) -> None:
    """It decides on a simulated job, and the same again offline by replay, also by commands."""
    package_folder = tmp_path / "mine"
    run("new", "mine", "--into", str(package_folder))
    environment = installed(tmp_path, "mine", package_folder)
    listed = trilithon(environment, "policy", "list", "-o", "json")
    assert "mine" in json.loads(listed)["health_policies"]
    assert "busy" in json.loads(listed)["detectors"]
    tested = subprocess.run(  # noqa: S603 - the package that was written above
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package_folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=package_folder,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    scenario, rounds = package_folder / "tests" / "overload.yaml", tmp_path / "rounds"
    folders = ("--into", str(tmp_path / "run"), "--record", str(rounds))
    trilithon(environment, "simulate", str(scenario), *folders)
    words = ("--policy", "dhalion", "--parameter", "health=mine", "-o", "json")
    replayed = json.loads(trilithon(environment, "replay", str(rounds), *words))
    assert all(each["same_as_recorded"] for each in replayed)
    reasons = {decision["reason"] for each in replayed for decision in each["decisions"]}
    assert "DIAGNOSIS_LITTLE_HEADROOM" in reasons


def test_a_package_that_cannot_be_loaded_is_left_out_with_the_reason() -> None:
    group = plugins.HEALTH_POLICIES
    broken = plugins.register(group, EntryPoint("broken", "no_such_module:Policy", group))
    assert broken is not None
    assert "no_such_module" in broken
    wrong = plugins.register(plugins.POLICIES, EntryPoint("henge", "json:dumps", plugins.POLICIES))
    assert wrong == "There is a policy 'henge' already."
    other = plugins.register(plugins.POLICIES, EntryPoint("other", "json:dumps", plugins.POLICIES))
    assert other == "It is not a PolicyEntry."


class Nameless(ProvisioningPolicy):
    name = "provisioning"


def test_a_health_policy_is_checked_when_it_is_registered() -> None:
    with pytest.raises(Exception, match="two health policies named 'provisioning'"):
        extensions.register(Nameless())

    class Partless(ProvisioningPolicy):
        name = "partless"
        detectors = (object(),)  # type: ignore[assignment]

    with pytest.raises(Exception, match="no method `detect`"):
        extensions.register(cast("Any", Partless()))
    assert "partless" not in extensions.health_policies()
