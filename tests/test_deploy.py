"""The files of the deployment guide fit together, and name options and settings that exist."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from ruamel.yaml import YAML

from trilithon.cli.main import app
from trilithon.cli.serve_command import HOST_OPTIONS
from trilithon.control.rules import Rules
from trilithon.engines.spark.session import configuration
from trilithon.service.settings import ServiceSettings

DEPLOY = Path(__file__).resolve().parent.parent / "docs" / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def loaded(file: Path) -> list[Any]:
    return list(YAML(typ="safe").load_all(file.read_text(encoding="utf-8")))


def objects(kind: str) -> dict[str, Any]:
    every = [one for file in MANIFESTS for one in loaded(file)]
    return {one["metadata"]["name"]: one for one in every if one["kind"] == kind}


def unit_commands() -> Iterator[list[str]]:
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("\\\n", " ")
        for command in re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE):
            yield shlex.split(command)


def trilithon_arguments() -> list[list[str]]:
    """The arguments of every `trilithon` that one of the files starts."""
    of_units = [command[1:] for command in unit_commands() if command[0].endswith("/trilithon")]
    (compose,) = loaded(DEPLOY / "container" / "compose.yaml")
    of_compose = [s["command"] for s in compose["services"].values() if s["image"] == "trilithon"]
    pod = objects("StatefulSet")["trilithon"]["spec"]["template"]["spec"]
    return [*of_units, *of_compose, *(container["args"] for container in pod["containers"])]


def test_every_command_has_options_that_exist() -> None:
    group: Any = typer.main.get_command(app)
    assert len(trilithon_arguments()) == 6
    for name, *arguments in trilithon_arguments():
        command = group.get_command(None, name).loaded
        context = command.make_context(name, list(arguments), resilient_parsing=True)
        assert context.args == [], (name, context.args)
        known = {option for parameter in command.params for option in parameter.opts}
        used = {word.partition("=")[0] for word in arguments if word.startswith("--")}
        assert used <= known, used - known


def test_no_daemon_starts_a_spark_of_its_own() -> None:
    """A daemon that was up before its host started one with other settings, in its own unit."""
    daemons = [arguments for name, *arguments in trilithon_arguments() if name == "serve"]
    hosts = [arguments for name, *arguments in trilithon_arguments() if name == "host"]
    assert (len(daemons), len(hosts)) == (3, 3)
    of_hosts = set(HOST_OPTIONS.values())
    for arguments in daemons:
        assert "--attach" in arguments
        assert not of_hosts & {word.partition("=")[0] for word in arguments}


def test_spark_takes_the_settings_that_the_files_give() -> None:
    """None of them is one that compiled jobs rely on, and a secret is among none of them."""
    for _, *arguments in trilithon_arguments():
        words = " ".join(arguments)
        given = dict(re.findall(r"--set[ =](spark\.[\w.]+)=(\S+)", words))
        configuration("spark://x:7077", Path("/tmp"), [], given)  # noqa: S108 - nothing is written
        assert not [name for name in given if "secret" in name]


def test_the_service_and_rules_files_are_valid() -> None:
    config = objects("ConfigMap")["trilithon"]["data"]
    yaml = YAML(typ="safe")
    for text in (
        (DEPLOY / "service.yaml").read_text(),
        (DEPLOY / "container" / "service.yaml").read_text(),
        config["service.yaml"],
    ):
        assert ServiceSettings.of(yaml.load(text)).tenants
    for text in ((DEPLOY / "rules.yaml").read_text(), config["rules.yaml"]):
        assert Rules.of(yaml.load(text)).policy == "henge"


def test_compose_refers_to_what_it_defines_and_publishes_the_api_alone() -> None:
    (compose,) = loaded(DEPLOY / "container" / "compose.yaml")
    services = compose["services"]
    for service in services.values():
        assert set(service["networks"]) <= set(compose["networks"])
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service.get("secrets", ())) <= set(compose.get("secrets", ()))
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            local = DEPLOY / "container" / source
            assert source in compose["volumes"] or local.is_file(), source
    published = {name: s["ports"] for name, s in services.items() if "ports" in s}
    assert published == {"daemon": ["8443:8443"]}
    assert compose["networks"]["cluster"] == {"internal": True}
    assert all("outside" not in s["networks"] for n, s in services.items() if n != "daemon")


def test_kubernetes_objects_refer_to_each_other() -> None:
    pod = objects("StatefulSet")["trilithon"]["spec"]["template"]
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    for service in objects("Service").values():
        assert service["spec"]["selector"].items() <= labels.items()
    assert spec["serviceAccountName"] in objects("ServiceAccount")
    claims = objects("StatefulSet")["trilithon"]["spec"]["volumeClaimTemplates"]
    volumes = {v["name"] for v in spec["volumes"]} | {c["metadata"]["name"] for c in claims}
    for container in (*spec["containers"], *spec["initContainers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    (settings,) = (v["configMap"]["name"] for v in spec["volumes"] if "configMap" in v)
    assert settings in objects("ConfigMap")
    host = " ".join(spec["containers"][0]["args"])
    driver = objects("Service")["driver"]["spec"]["ports"]
    ports = {int(port) for port in re.findall(r"spark\.(?:driver|blockManager)\.port=(\d+)", host)}
    assert ports == {port["targetPort"] for port in driver}


def test_no_policy_lets_strangers_at_the_shuffle() -> None:
    """Its port changes: whoever may reach one port of Spark's pods may reach all of them."""
    policies = objects("NetworkPolicy")
    (rule,) = policies["spark"]["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": policies["spark"]["spec"]["podSelector"]}]
    (api,) = policies["api"]["spec"]["ingress"]
    assert [port["port"] for port in api["ports"]] == [8443]
    executors = "spark.kubernetes.executor.label.app=trilithon-executor"
    pod = objects("StatefulSet")["trilithon"]["spec"]["template"]["spec"]
    assert any(executors in argument for argument in pod["containers"][0]["args"])
    selected = policies["spark"]["spec"]["podSelector"]["matchExpressions"][0]["values"]
    assert set(selected) == {"trilithon", "trilithon-executor"}
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8")
        if unit.stem != "trilithon":  # Spark does not run in the daemon: it has --attach
            assert "IPAddressDeny=any" in text, unit.name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_units() -> None:
    checked = subprocess.run(  # noqa: S603 - a program of the system
        ["systemd-analyze", "verify", *map(str, UNITS)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    # The programs are not installed here; whatever else it says is wrong.
    said = [row for row in checked.stderr.splitlines() if "is not executable" not in row]
    ours = [row for row in said if any(unit.name in row for unit in UNITS)]
    assert ours == []


def test_every_file_is_in_the_guide() -> None:
    guide = (DEPLOY / "README.md").read_text(encoding="utf-8")
    assert "**not run**" in guide
    for link in re.findall(r"\]\(([^)#]+)\)", guide):
        # A pattern stands for several files.
        assert (DEPLOY / link).exists() or "://" in link, link
