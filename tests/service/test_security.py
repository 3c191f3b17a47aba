"""Where the service may listen, what tenants' jobs may use, and files with secrets."""

import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.cluster import chain
from tests.service.test_api import PATIENCE_S, apply, until
from tests.service.test_serve import cli
from trilithon.cli.hosting import kafka_arguments
from trilithon.cli.serving import _listening
from trilithon.cli.settings import read_settings, read_tenant_kafka
from trilithon.engines.spark.kafka import Kafka
from trilithon.errors import InvalidSetting, Problem, TrilithonError
from trilithon.model.job import Job, Work
from trilithon.service.access.roles import Role
from trilithon.service.address import published
from trilithon.service.daemon import Daemon
from trilithon.service.exposure import Exposure
from trilithon.service.private_files import read_secret
from trilithon.service.settings import ServiceSettings
from trilithon.service.tenant_rules import tenant_problems

ADS = {"read_topics": ["ads-"], "write_topics": ["ads-out"]}
SETTINGS = ServiceSettings.of({"tenants": {"ads": ADS}})


def job(**given: Any) -> Job:
    base = chain("ads")  # reads ads-in, writes ads-out
    return replace(base, **given)


def codes(checked: Job, settings: ServiceSettings = SETTINGS) -> list[tuple[str, str]]:
    return [(p.code, p.path) for p in tenant_problems(checked, settings)]


def test_a_tenant_reads_and_writes_topics_with_its_prefixes_only() -> None:
    assert codes(job()) == []
    base = job()
    source = replace(base.sources[0], options=(("subscribe", "ads-in, shop-orders"),))
    sink = replace(base.sinks[0], options=(("topic", "ads-elsewhere"),))
    assert codes(job(sources=(source,), sinks=(sink,), dead_letter_topic="shop-dead")) == [
        ("TOPIC_NOT_ALLOWED", "sources[0].options.subscribe"),
        ("TOPIC_NOT_ALLOWED", "sinks[0].options.topic"),
        ("TOPIC_NOT_ALLOWED", "dead_letter_topic"),
    ]
    assert codes(job(dead_letter_topic="ads-out-dead")) == []
    nothing = ServiceSettings.of({"tenants": {"ads": {}}})
    assert len(codes(job(), nothing)) == 2


def test_a_tenant_that_is_not_listed_submits_nothing() -> None:
    assert codes(chain("x", "shop")) == [("TENANT_UNKNOWN", "tenant")]
    assert codes(chain("x", "shop"), ServiceSettings()) == []


@pytest.mark.parametrize("topic", ["trilithon.a1.shop.orders.cut.1", "__consumer_offsets"])
def test_nobody_names_a_topic_of_the_engine_or_of_kafka(topic: str) -> None:
    """Internal topics carry other tenants' records."""
    for settings in (SETTINGS, ServiceSettings()):
        source = replace(job().sources[0], options=(("subscribe", topic),))
        assert ("TOPIC_RESERVED", "sources[0].options.subscribe") in codes(
            job(sources=(source,)), settings
        )
        assert ("TOPIC_RESERVED", "dead_letter_topic") in codes(
            job(dead_letter_topic=topic), settings
        )


@pytest.mark.parametrize(
    "work",
    [
        Work(where="work(5) > 0"),
        Work(select=("v", "WAIT (v) AS w")),
        Work(group_by=("v",), aggregate=(("n", "sum(wait(v))"),)),
    ],
)
def test_functions_that_burn_time_need_the_administrators_leave(work: Work) -> None:
    burns = job(operators=(replace(job().operators[0], work=work), job().operators[1]))
    assert codes(burns) == [("FUNCTION_NOT_ALLOWED", "operators[0]")]
    allowed = ServiceSettings.of({"tenants": {"ads": {**ADS, "workload_functions": True}}})
    assert codes(burns, allowed) == []
    named = Work(where="v > instance_number() AND 'work(1)' <> 'wait(1)'")
    assert codes(job(operators=(replace(job().operators[0], work=named),))) == []


BURNS = job(
    operators=(
        replace(job().operators[0], work=Work(select=("v", "wait(5) AS w"))),
        job().operators[1],
    )
)


@pytest.mark.parametrize(
    ("settings", "owner_only", "allowed"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"workload_functions": True}, False, True),
        ({"workload_functions": False}, True, False),
        ({"tenants": {"ads": ADS}}, True, False),
        ({"tenants": {"ads": ADS}, "workload_functions": True}, False, True),
        (
            {"tenants": {"ads": {**ADS, "workload_functions": False}}, "workload_functions": True},
            True,
            False,
        ),
        ({"tenants": {"ads": {**ADS, "workload_functions": True}}}, False, True),
    ],
)
def test_time_is_burnt_where_the_administrator_allows_it_or_is_alone(
    settings: Any, owner_only: bool, allowed: bool
) -> None:
    found = tenant_problems(BURNS, ServiceSettings.of(settings), owner_only=owner_only)
    assert [problem.code for problem in found] == ([] if allowed else ["FUNCTION_NOT_ALLOWED"])


def test_without_a_service_file_only_the_owner_of_a_daemon_on_loopback_burns_time(
    client: TestClient, running: Daemon
) -> None:
    """Every tenant was allowed to, on every address."""
    assert apply(client, BURNS).status_code == 201

    def refused() -> list[str]:
        answer = apply(client, replace(BURNS, name="another"))
        return [problem["code"] for problem in answer.json()["problems"]]

    token, _ = running.access.store.create("ci", {"ads": Role.EDITOR})
    assert refused() == ["FUNCTION_NOT_ALLOWED"]
    running.access.store.revoke(token.id)
    running.public = True
    assert refused() == ["FUNCTION_NOT_ALLOWED"]
    running.public = False
    assert apply(client, replace(BURNS, name="another")).status_code == 201


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_a_daemon_knows_whether_others_can_reach_it(running: Daemon, address: str) -> None:
    listening, _ = _listening(running, Exposure(address, insecure=True))
    listening.close()
    assert running.public is (address != "127.0.0.1")


def test_a_refused_job_leaves_no_trace(client: TestClient, running: Daemon) -> None:
    running.settings = SETTINGS
    answer = apply(client, chain("x", "shop"))
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["code"] == "TENANT_UNKNOWN"
    assert running.journal.jobs() == ()
    assert apply(client, job()).status_code == 201


def test_records_are_shown_only_of_topics_that_the_tenant_may_read(
    client: TestClient, running: Daemon
) -> None:
    """A tenant with a write-only prefix read it by a job that writes there: others may write there,
    too.
    """
    prefixes = {"read_topics": ["ads-in"], "write_topics": ["ads-out", "dead"]}
    running.settings = ServiceSettings.of({"tenants": {"ads": prefixes}})
    assert apply(client, job(dead_letter_topic="dead-letters")).status_code == 201
    read: list[str] = []

    def read_latest(topic: str, *_: Any) -> list[dict[str, Any]]:
        read.append(topic)
        return []

    running.read_latest = read_latest
    running.edge_topics = lambda _: {"o0->o1": "trilithon.1a.ads.ads.cut"}

    def look(place: str) -> tuple[int, str]:
        answer = client.get(f"/jobs/ads/ads/records/{place}")
        return answer.status_code, answer.json().get("code", "")

    for place in ("out", "o1->out", "dead_letters"):
        assert look(place) == (403, "TOPIC_NOT_ALLOWED"), place
    assert read == []
    for place in ("in", "in->o0", "o0->o1"):
        assert look(place) == (200, ""), place
    assert read == ["ads-in", "ads-in", "trilithon.1a.ads.ads.cut"]
    # The rules changed after the job was accepted.
    running.settings = ServiceSettings.of({"tenants": {"shop": prefixes}})
    assert look("in") == (403, "TOPIC_NOT_ALLOWED")
    assert look("o0->o1") == (200, "")
    for settings in ({"tenants": {"ads": {"read_topics": ["ads-", "dead"]}}}, {}):
        running.settings = ServiceSettings.of(settings)
        assert {look(place) for place in ("in", "out", "dead_letters")} == {(200, "")}


@pytest.mark.parametrize(
    ("exposure", "tokens", "refused"),
    [
        (Exposure(), False, ""),
        (Exposure("::1"), False, ""),
        (Exposure("0.0.0.0"), False, "TLS .* and no tokens"),  # noqa: S104
        (Exposure("0.0.0.0"), True, "TLS"),  # noqa: S104
        (Exposure("streams.example"), True, "TLS"),
        (Exposure("192.168.1.5", insecure=True), False, ""),
    ],
)
def test_an_address_that_others_reach_needs_tls_and_tokens(
    exposure: Exposure, tokens: bool, refused: str
) -> None:
    if not refused:
        exposure.check(has_tokens=tokens)
        return
    with pytest.raises(InvalidSetting, match=refused):
        exposure.check(has_tokens=tokens)


def test_tls_without_tokens_is_refused_and_so_is_a_key_that_others_can_read(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_text("")
    key.write_text("")
    key.chmod(0o640)
    safe = Exposure("0.0.0.0", 0, certificate, key)  # noqa: S104
    with pytest.raises(InvalidSetting, match="others can read"):
        safe.check(has_tokens=True)
    key.chmod(0o600)
    safe.check(has_tokens=True)
    with pytest.raises(InvalidSetting, match="tokens"):
        safe.check(has_tokens=False)
    with pytest.raises(InvalidSetting, match="certificate and its key"):
        Exposure(certificate=certificate).check(has_tokens=True)


def test_a_secret_is_read_from_a_private_file_and_in_no_message(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    file.chmod(0o644)
    with pytest.raises(InvalidSetting, match="chmod 600") as refused:
        read_secret(file, "secret_file")
    assert "hunter2" not in str(refused.value)
    file.chmod(0o400)
    assert read_secret(file, "secret_file") == "hunter2"
    with pytest.raises(TrilithonError):
        read_secret(tmp_path / "absent", "secret_file")


def test_kafka_settings_with_a_password_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.password=hunter2\n")
    file.chmod(0o644)
    with pytest.raises(InvalidSetting, match="others can read"):
        read_settings(file)
    file.chmod(0o600)
    assert read_settings(file)["sasl.password"] == "hunter2"
    file.write_text("client.id=x\n")
    file.chmod(0o644)
    assert read_settings(file) == {"client.id": "x"}


@pytest.mark.parametrize(
    "data",
    [
        {"tenant": {}},
        {"tenants": {"Ads!": {}}},
        {"tenants": {"ads": {"read_topics": [""]}}},
        {"tenants": {"ads": {"read_topics": ["a*"]}}},
        {"requests": {"per_s": 0}},
        {"webhooks": [{"url": "file:///etc/passwd"}]},
        {"webhooks": [{"url": "https://user:pw@example"}]},
        [],
    ],
)
def test_settings_that_mean_nothing_are_refused(data: Any) -> None:
    with pytest.raises(InvalidSetting):
        ServiceSettings.of(data)


def test_problems_of_tenants_have_documented_codes() -> None:
    assert all(isinstance(p, Problem) for p in tenant_problems(chain("x", "shop"), SETTINGS))


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path / "tls"
    folder.mkdir()
    subprocess.run(  # noqa: S603 - a program of the system
        [
            openssl,
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=streams.example",
            "-keyout",
            str(folder / "key.pem"),
            "-out",
            str(folder / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "key.pem").chmod(0o600)
    return folder


@pytest.fixture
def over_tls(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """A daemon on all addresses, with TLS and --insecure only for want of a token."""
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "state"))
    options = ["--engine", "simulated", "--address", "0.0.0.0", "--insecure"]  # noqa: S104
    options += [
        "--certificate",
        str(certificate / "cert.pem"),
        "--key",
        str(certificate / "key.pem"),
    ]
    serving = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "trilithon", "serve", *options], stdout=subprocess.DEVNULL
    )
    try:
        yield published(tmp_path / "state" / "daemon", PATIENCE_S)
    finally:
        serving.terminate()
        serving.wait(PATIENCE_S)


def test_commands_and_clients_reach_a_daemon_over_tls(
    over_tls: dict[str, Any], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: len(cli("job", "list")) == 5)
    made = cli("token", "create", "reader", "--grant", "ads=viewer")
    trusted = ssl.create_default_context(cafile=certificate / "cert.pem")
    trusted.check_hostname = False

    def ask(secret: str | None) -> Any:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        request = urllib.request.Request(  # noqa: S310 - our own daemon
            f"{over_tls['url']}/api/v1/jobs", headers=headers
        )
        with urllib.request.urlopen(request, context=trusted) as answer:  # noqa: S310
            return json.load(answer)

    assert {row["metadata"]["tenant"] for row in ask(made["secret"])} == {"ads"}
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(None)
    # From elsewhere: by URL, token and the certificate's name.
    port = over_tls["url"].rpartition(":")[2]
    monkeypatch.setenv("TRILITHON_STATE", str(certificate))
    monkeypatch.setenv("TRILITHON_URL", f"https://127.0.0.1:{port}")
    monkeypatch.setenv("TRILITHON_TOKEN", made["secret"])
    program = [sys.executable, "-m", "trilithon", "job", "list", "-o", "json"]
    distrusted = subprocess.run(program, capture_output=True, text=True, check=False)  # noqa: S603
    assert distrusted.returncode == 15
    assert "CERTIFICATE_VERIFY_FAILED" in distrusted.stderr
    assert made["secret"] not in distrusted.stderr


def test_serving_others_without_tls_and_tokens_is_refused(tmp_path: Path) -> None:
    options = ["--engine", "simulated", "--address", "0.0.0.0"]  # noqa: S104
    refused = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-m", "trilithon", "serve", *options],
        env={**os.environ, "TRILITHON_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S * 2,
    )
    assert refused.returncode == 3
    assert "--insecure" in refused.stderr
    assert not (tmp_path / "daemon" / "daemon.json").exists()


def test_kafka_principals_of_tenants_stand_in_private_files(tmp_path: Path) -> None:
    file = tmp_path / "ads.properties"
    file.write_text('sasl.jaas.config=… username="ads" password="hunter2";\n')
    settings = ServiceSettings.of({"tenants": {"ads": {"kafka_settings_file": file}, "shop": {}}})
    file.chmod(0o640)
    with pytest.raises(InvalidSetting, match="others can read") as refused:
        settings.kafka_files()
    file.chmod(0o600)
    assert settings.kafka_files() == {"ads": file}
    # The host gets the name of the file, not what is in it.
    assert kafka_arguments(settings) == ["--tenant-kafka", f"ads={file}"]
    # An application gets the principals of its own tenants.
    assert kafka_arguments(settings, "ads") == kafka_arguments(settings)
    assert kafka_arguments(settings, "shop") == []
    read = read_tenant_kafka([f"ads={file}"])
    assert read == {"ads": {"sasl.jaas.config": '… username="ads" password="hunter2";'}}
    shown = repr((settings, Kafka("broker:9092", {}, read), str(refused.value)))
    assert "hunter2" not in shown


def test_a_tenants_principal_replaces_that_of_the_application_whole() -> None:
    own = {"security.protocol": "SASL_SSL", "bootstrap.servers": "broker:9094"}
    kafka = Kafka("broker:9092", {"client.id": "app", "sasl.mechanism": "PLAIN"}, {"ads": own})
    assert kafka.of_tenant("ads") == Kafka("broker:9094", {"security.protocol": "SASL_SSL"})
    assert kafka.of_tenant("shop") == Kafka("broker:9092", kafka.settings)
