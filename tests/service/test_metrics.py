"""What Prometheus scrapes: exactly these metrics; alert rules and the dashboard use them."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML
from starlette.testclient import TestClient

from tests.cluster import FakeCluster, chain
from tests.service.test_access import client_of, token_for
from tests.service.test_api import JOB, apply, state, until
from trilithon.service.daemon import Daemon

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "docs" / "deploy"
METRICS = {
    "trilithon_actions": "counter",
    "trilithon_alerts": "gauge",
    "trilithon_blind_rounds": "counter",
    "trilithon_build_info": "gauge",
    "trilithon_decisions": "counter",
    "trilithon_engine_reachable": "gauge",
    "trilithon_event_stream_clients": "gauge",
    "trilithon_event_stream_clients_dropped": "counter",
    "trilithon_http_request_duration_seconds": "histogram",
    "trilithon_job_hungry": "gauge",
    "trilithon_job_input_records_per_second": "gauge",
    "trilithon_job_juice_ratio": "gauge",
    "trilithon_job_lag_records": "gauge",
    "trilithon_job_latency_p95_seconds": "gauge",
    "trilithon_job_max_utility": "gauge",
    "trilithon_job_metrics_missing": "gauge",
    "trilithon_job_output_records_per_second": "gauge",
    "trilithon_job_paused": "gauge",
    "trilithon_job_ready": "gauge",
    "trilithon_job_slo_met": "gauge",
    "trilithon_job_slots": "gauge",
    "trilithon_job_utility": "gauge",
    "trilithon_jobs": "gauge",
    "trilithon_last_round_timestamp_seconds": "gauge",
    "trilithon_machine_instances": "gauge",
    "trilithon_machines": "gauge",
    "trilithon_round_duration_seconds": "histogram",
    "trilithon_round_failures": "counter",
    "trilithon_rounds": "counter",
    "trilithon_slots": "gauge",
    "trilithon_slots_used": "gauge",
    "trilithon_tenant_slot_seconds": "counter",
    "trilithon_tenant_slots_quota": "gauge",
    "trilithon_tenant_slots_used": "gauge",
    "trilithon_webhook_failures": "counter",
}
# By these the library counts when an object was made.
CREATED = {name for name in METRICS if METRICS[name] == "histogram"}


def scraped(client: TestClient) -> tuple[str, dict[str, Any]]:
    answer = client.get("http://127.0.0.1/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    return answer.text, {
        name: family
        for name, family in families.items()
        if name.removesuffix("_created") not in CREATED or not name.endswith("_created")
    }


@pytest.fixture
def busy(client: TestClient, cluster: FakeCluster) -> TestClient:
    """A daemon that has decided and acted, with jobs of two tenants."""
    cluster.rates[JOB.id] = 250.0
    apply(client)
    apply(client, chain("other", "shop"))
    until(lambda: {state(client), state(client, "shop/other")} == {"running"})
    until(lambda: "trilithon_actions_total{" in scraped(client)[0])
    until(lambda: 'trilithon_job_utility{job="other"' in scraped(client)[0])
    return client


def test_exactly_these_metrics_are_there_with_their_types(busy: TestClient) -> None:
    _, families = scraped(busy)
    assert {name: family.type for name, family in families.items()} == METRICS
    assert all(family.documentation.endswith(".") for family in families.values())
    labels = {
        name: {tuple(sorted(set(sample.labels) - {"le"})) for sample in family.samples}
        for name, family in families.items()
    }
    for name in METRICS:
        if name.startswith("trilithon_job_") and labels[name]:
            assert labels[name] == {("job", "tenant")}
        if name.startswith("trilithon_tenant_"):
            assert labels[name] == {("tenant",)}


def test_numbers_are_those_of_the_api_and_what_is_missing_has_no_sample(
    busy: TestClient, running: Daemon
) -> None:
    running.stop()
    _, families = scraped(busy)
    shown = busy.get("/snapshot").json()
    jobs = {job["job"]: job for job in shown["jobs"]}
    for sample in families["trilithon_job_utility"].samples:
        name = f"{sample.labels['tenant']}/{sample.labels['job']}"
        assert sample.value == pytest.approx(jobs[name]["utility"])
    (seconds,) = (
        s.value
        for s in families["trilithon_job_latency_p95_seconds"].samples
        if s.labels["job"] == "other"
    )
    assert seconds == pytest.approx(jobs["shop/other"]["p95_ms"] / 1000)
    hungry = {s.labels["job"]: s.value for s in families["trilithon_job_hungry"].samples}
    by_api = {job["metadata"]["name"]: _hungry(job) for job in busy.get("/jobs").json()}
    assert hungry == {job: value for job, value in by_api.items() if value is not None}
    (used,) = families["trilithon_slots_used"].samples
    assert used.value == shown["slots_used"]


def _hungry(job: dict[str, Any]) -> float | None:
    (condition,) = (c for c in job["status"]["conditions"] if c["type"] == "Hungry")
    return {"True": 1.0, "False": 0.0, "Unknown": None}[condition["status"]]


def test_a_tenant_scrapes_its_own_jobs_and_nothing_else(busy: TestClient, running: Daemon) -> None:
    text, families = scraped(client_of(running, token_for(running, ads="viewer")))
    assert "shop" not in text
    assert {f for f in families if not f.startswith(("trilithon_job_", "trilithon_tenant_"))} == (
        set()
    )
    assert client_of(running, None).get("http://127.0.0.1/metrics").status_code == 401


def test_the_page_names_every_metric() -> None:
    page = (ROOT / "docs/concepts/observability.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(trilithon_\w+)`", page))
    suffix = {"counter": "_total", "gauge": "", "histogram": ""}
    assert named == {name + suffix[kind] for name, kind in METRICS.items()}


def expressions() -> Iterable[tuple[str, str]]:
    rules = YAML(typ="safe").load(DEPLOY / "prometheus" / "alert-rules.yaml")
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    board = json.loads((DEPLOY / "grafana" / "trilithon.json").read_text(encoding="utf-8"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


# The labels of what has more or others than a job or a tenant.
LABELS = {
    "trilithon_actions_total": {"status"},
    "trilithon_alerts": {"code", "severity"},
    "trilithon_build_info": {"policy", "version"},
    "trilithon_decisions_total": {"policy", "reason"},
    "trilithon_http_request_duration_seconds_bucket": {"method", "status", "le"},
    "trilithon_jobs": {"state"},
    "trilithon_machine_instances": {"machine"},
    "trilithon_round_duration_seconds_bucket": {"le"},
}


def labels_of(sample: str) -> set[str]:
    if sample.startswith("trilithon_job_"):
        return {"tenant", "job"}
    return {"tenant"} if sample.startswith("trilithon_tenant_") else LABELS.get(sample, set())


def test_rules_and_dashboard_ask_for_samples_and_labels_that_exist(busy: TestClient) -> None:
    _, families = scraped(busy)
    samples = {s.name for family in families.values() for s in family.samples}
    # No job is hungry here and no alert lasts: their names come from the families.
    samples |= {name for name, kind in METRICS.items() if kind == "gauge"}
    asked = {name for _, text in expressions() for name in re.findall(r"trilithon_\w+", text)}
    assert asked <= samples, asked - samples
    assert len(asked) > 20
    for title, text in expressions():
        known = set().union(*map(labels_of, re.findall(r"trilithon_\w+", text)))
        named = {
            word.strip()
            for by in re.findall(r"(?:by|on) \(([^)]*)\)", text)
            for word in by.split(",")
        }
        named |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", text))
        named |= set(re.findall(r"label_values\(\w+, (\w+)\)", text))
        assert named <= known, title


def test_what_is_scraped_has_the_labels_that_rules_and_dashboard_are_checked_with(
    busy: TestClient,
) -> None:
    _, families = scraped(busy)
    for family in families.values():
        for sample in family.samples:
            if not sample.name.endswith(("_sum", "_count")):
                assert set(sample.labels) == labels_of(sample.name), sample.name


def test_legends_and_annotations_use_labels_that_their_samples_have() -> None:
    board = json.loads((DEPLOY / "grafana" / "trilithon.json").read_text(encoding="utf-8"))
    rules = YAML(typ="safe").load(DEPLOY / "prometheus" / "alert-rules.yaml")
    shown = [
        (target["expr"], target.get("legendFormat", ""))
        for panel in board["panels"]
        for target in panel["targets"]
    ]
    shown += [
        (rule["expr"], " ".join(rule["annotations"].values()))
        for group in rules["groups"]
        for rule in group["rules"]
    ]
    for expression, text in shown:
        known = set().union(*map(labels_of, re.findall(r"trilithon_\w+", expression)))
        used = set(re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text))
        assert used <= known, text
    assert sum("{{" in text for _, text in shown) > 10


# Beside Python: there the set-up of the tests puts it.
PROMTOOL = shutil.which(
    "promtool", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_accepts_the_metrics_and_the_rules(busy: TestClient) -> None:
    text, _ = scraped(busy)
    for arguments, given in (
        (("check", "metrics"), text),
        (("check", "rules", str(DEPLOY / "prometheus" / "alert-rules.yaml")), None),
        (("test", "rules", str(DEPLOY / "prometheus" / "alert-rules-test.yaml")), None),
    ):
        checked = subprocess.run(  # noqa: S603 - a program of the system
            [str(PROMTOOL), *arguments], input=given, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_slot_hours_are_counted_per_tenant_and_kept(busy: TestClient, running: Daemon) -> None:
    tally = running.monitor.tally
    until(lambda: tally.slot_seconds["shop"] > 50)
    running.stop()  # writes the rest
    rows = {row["tenant"]: row["slot_hours"] for row in busy.get("/usage").json()}
    assert rows["shop"] == pytest.approx(tally.slot_seconds["shop"] / 3600)
    assert rows["ads"] == pytest.approx(tally.slot_seconds["ads"] / 3600)
    mine = client_of(running, token_for(running, ads="viewer")).get("/usage").json()
    assert {row["tenant"] for row in mine} == {"ads"}
    # Nobody is charged for a time in which nobody looked.
    facts = running.monitor.last
    before = tally.slot_seconds["ads"]
    last = running.controller.last
    assert last is not None
    tally.round(last, replace(facts, time_s=facts.time_s + 1e6), 0.1)
    assert tally.slot_seconds["ads"] == before
    # Nor for a step of the clock.
    later_s = facts.time_s + 1e6 + 60.0
    tally.round(replace(last, clock_set_by_s=50.0), replace(facts, time_s=later_s), 0.1)
    slots = sum(job.slots for job in facts.jobs.values() if job.tenant == "ads" and job.has_slots)
    assert tally.slot_seconds["ads"] == pytest.approx(before + 10.0 * slots)
    assert slots > 0
