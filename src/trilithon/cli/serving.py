"""Runs the daemon of `serve`: it attaches to the engine host or starts one, and serves the API."""

import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import uvicorn

from trilithon import folders, logs
from trilithon.cli.hosting import ApplicationHosts, AttachedHost, Hosting, SharedHost
from trilithon.cli.kafka_address import kafka_address
from trilithon.cli.log_options import announcing, log_arguments
from trilithon.cli.processes import on_signals
from trilithon.cli.settings import given_settings, read_settings
from trilithon.control import failpoints
from trilithon.control.rules import Rules
from trilithon.engines.remote import RemoteEngine
from trilithon.engines.spark.cluster_shares import executor_settings
from trilithon.engines.spark.compiler import unsupported
from trilithon.engines.spark.standalone import own_cluster
from trilithon.errors import InvalidSetting
from trilithon.model.job import tenant_of
from trilithon.scenarios.live import SHOWCASE, live_rules, live_simulation
from trilithon.scenarios.scenario import load_scenario
from trilithon.service.address import publish, withdraw
from trilithon.service.api import api
from trilithon.service.daemon import Daemon, calm_collector, daemon
from trilithon.service.exposure import Exposure
from trilithon.service.keeper import PATIENCE_S
from trilithon.service.settings import ServiceSettings
from trilithon.service.web_server import listen, url_of, web_server
from trilithon.spec.yaml_reader import read_yaml_file
from trilithon.workloads.kafka_settings import librdkafka_settings
from trilithon.workloads.topic_reader import TopicReader

_log = logs.logger()


def serve(
    master: str,
    kafka: str | None,
    kafka_settings: Path | None,
    slots: int,
    executors: int | None,
    spark_settings: Sequence[str] | None,
    per_tenant: bool,
    applications: int | None,
    attach: bool,
    rules_file: Path | None,
    exposure: Exposure,
    service_file: Path | None,
    record: Path | None,
    with_jobs: bool,
    log_level: logs.LogLevel,
    log_json: bool,
) -> None:
    """Serves the API until a signal ends the daemon, or its engine does not start."""
    logs.configure(log_level, json=log_json)
    rules = _rules(rules_file)
    failpoints.arm_from_environment()
    folder = folders.state() / "daemon"
    service = ServiceSettings.read(service_file)
    if service.kafka_files() and kafka is None:
        raise InvalidSetting(
            "`kafka_settings_file` of a tenant needs a Kafka that knows principals.",
            "Name it with --kafka host:port: the embedded broker has none.",
        )
    command = _host(master, slots, kafka, kafka_settings, executors, spark_settings)
    command += log_arguments(log_level, as_json=log_json)
    if service.applications and not per_tenant:
        raise InvalidSetting("`applications` in the service file needs --per-tenant.")
    exposure.check_files()
    hosts: Hosting
    if attach:
        hosts = AttachedHost()
    elif per_tenant:
        count = applications or service.application_count
        # Refused here, not when the first host starts.
        executor_settings(own_cluster(master), count, given_settings(spark_settings or ()))
        command += ["--applications", str(count)]
        hosts = ApplicationHosts(command, slots, service)
    else:
        hosts = SharedHost(command, service)
    calm_collector()
    controlled = daemon(
        hosts.engine,
        rules,
        folder,
        record,
        unsupported=unsupported,
        starting=hosts.starting,
        settings=service,
    )
    settings = {} if kafka_settings is None else read_settings(kafka_settings)

    own_settings = {name: read_settings(file) for name, file in service.kafka_files().items()}

    def read_latest(topic: str, count: int, tenant: str) -> list[dict[str, Any]]:
        own = librdkafka_settings(own_settings.get(tenant, settings))
        address = own.pop("bootstrap.servers", None) or kafka_address(kafka)
        with TopicReader(address, own) as reader:
            return [one.as_data() for one in reader.latest(topic, count)]

    def engine_of(tenant: str) -> "closing[RemoteEngine]":
        return closing(RemoteEngine(hosts.socket_of(tenant), PATIENCE_S))

    def load_python(tenant: str, file: str, folders: Sequence[str]) -> Mapping[str, Any]:
        with engine_of(tenant) as remote:
            return remote.load_python(file, folders)

    def edge_topics(job: str) -> Mapping[str, str]:
        with engine_of(tenant_of(job)) as remote:
            accepted = remote.jobs().get(job)
            return {} if accepted is None else accepted.edge_topics

    def read_edge(job: str, edge: str, count: int) -> list[dict[str, Any]]:
        with engine_of(tenant_of(job)) as remote:
            return remote.edge_records(job, edge, count)

    with controlled as running, announcing(as_json=log_json) as tell:
        running.status_before_start = hosts.status_before_start
        running.read_latest, running.python_jobs.load = read_latest, load_python
        running.edge_topics, running.read_edge = edge_topics, read_edge
        listening, server = _listening(running, exposure)
        url = url_of(listening, tls=exposure.tls)
        hosts.begin(
            running,
            lambda message: tell(f"listening on {url}; {message}"),
            lambda: setattr(server, "should_exit", True),
        )
        _serve_until_signal(server, listening, folder, running, exposure)
        if hosts.failure is not None:
            raise hosts.failure
        if with_jobs:
            hosts.end(tell)
    hosts.engine.close()


def serve_simulated(
    scenario: Path | None,
    speed: float,
    load_per_s: float,
    rules_file: Path | None,
    exposure: Exposure,
    service_file: Path | None,
    record: Path | None,
    log_level: logs.LogLevel,
    log_json: bool,
) -> None:
    """Serves the API in front of a simulated cluster, which runs in real time."""
    logs.configure(log_level, json=log_json)
    shown = load_scenario(scenario or SHOWCASE)
    rules = live_rules(shown) if rules_file is None else _rules(rules_file)
    folder = folders.state() / "daemon"
    engine = live_simulation(shown, speed, load_per_s)
    calm_collector()
    service = ServiceSettings.read(service_file)
    exposure.check_files()
    controlled = daemon(engine, rules, folder, record, clock=engine, speed=speed, settings=service)
    with controlled as running, announcing(as_json=log_json) as tell:
        listening, server = _listening(running, exposure)
        url = url_of(listening, tls=exposure.tls)
        tell(f"listening on {url}; simulating {shown.name}: {shown.about}")
        tell("`trilithon dashboard` prints a link to its pages, `trilithon top` shows its jobs")
        _serve_until_signal(server, listening, folder, running, exposure)
    engine.close()


def _rules(file: Path | None) -> Rules:
    return Rules() if file is None else Rules.of(read_yaml_file(file).data)


def _listening(running: Daemon, exposure: Exposure) -> tuple[socket.socket, uvicorn.Server]:
    exposure.check(has_tokens=running.access.store.has_tokens())
    running.public = exposure.public
    if exposure.public and exposure.insecure:
        _log.warning("served_insecurely", address=exposure.address, tls=exposure.tls)
    app = api(running, exposure.hosts)
    return listen(exposure.port, exposure.address), web_server(app, exposure)


def _serve_until_signal(
    server: uvicorn.Server,
    listening: socket.socket,
    folder: Path,
    running: Daemon,
    exposure: Exposure,
) -> None:
    url = url_of(listening, tls=exposure.tls)
    publish(folder, url, running.token, exposure.certificate)
    try:
        on_signals(lambda: setattr(server, "should_exit", True))
        server.run(sockets=[listening])
    finally:
        withdraw(folder)
        listening.close()
    running.stop()


def _host(
    master: str,
    slots: int,
    kafka: str | None,
    kafka_settings: Path | None,
    executors: int | None,
    spark_settings: Sequence[str] | None,
) -> list[str]:
    """The command that starts a host with the options of this one. Invalid settings are refused
    here, not when the host starts.
    """
    given_settings(spark_settings or ())
    if kafka_settings is not None:
        read_settings(kafka_settings)
    optional = {
        "--kafka": kafka,
        "--kafka-settings": kafka_settings and kafka_settings.resolve(),
        "--executors": executors,
    }
    command = [sys.executable, "-m", "trilithon", "host", "--master", master, "--slots", str(slots)]
    for name, value in optional.items():
        command += [] if value is None else [name, str(value)]
    for setting in spark_settings or ():
        command += ["--set", setting]
    return command
