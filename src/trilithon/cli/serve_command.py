"""Owns the command `serve`: its options, and that others see at once that a daemon is starting."""

from pathlib import Path
from typing import Annotated

import typer

from trilithon import folders, logs
from trilithon.cli.engine_name import EngineName
from trilithon.cli.log_options import AsJson, Level
from trilithon.cli.spark_options import (
    MASTER,
    SLOTS,
    Executors,
    Kafka,
    KafkaSettings,
    Master,
    Slots,
    SparkSettings,
)
from trilithon.engines.application_names import APPLICATIONS
from trilithon.service.address import announce
from trilithon.service.exposure import Exposure

# What only a daemon that starts its host can decide.
HOST_OPTIONS = {
    "master": "--master",
    "slots": "--slots",
    "executors": "--executors",
    "spark_settings": "--set",
    "per_tenant": "--per-tenant",
    "applications": "--applications",
    "with_jobs": "--with-jobs",
}


def serve_command(
    context: typer.Context,
    engine: Annotated[
        EngineName,
        typer.Option(
            "--engine", help="simulated: a cluster in memory, in real time; needs no Spark."
        ),
    ] = EngineName.SPARK,
    scenario: Annotated[
        Path | None,
        typer.Option("--scenario", help="simulated: a scenario file; default: five tenants' jobs."),
    ] = None,
    speed: Annotated[
        float,
        typer.Option("--speed", help="simulated: seconds that pass in a second.", min=0.1, max=100),
    ] = 1.0,
    rate: Annotated[
        float,
        typer.Option("--rate", help="simulated: records/s to each source of added jobs.", min=0),
    ] = 100.0,
    master: Master = MASTER,
    kafka: Kafka = None,
    kafka_settings: KafkaSettings = None,
    slots: Slots = SLOTS,
    executors: Executors = None,
    spark_settings: SparkSettings = None,
    per_tenant: Annotated[
        bool,
        typer.Option("--per-tenant", help="One Spark application per tenant, or group of them."),
    ] = False,
    applications: Annotated[
        int | None,
        typer.Option(
            "--applications",
            help="With --per-tenant: among how many applications the workers of `cluster start` "
            "are divided; default: those of the tenants in the service file, without tenants "
            f"at least {APPLICATIONS}.",
            min=1,
        ),
    ] = None,
    attach: Annotated[
        bool,
        typer.Option(
            "--attach", help="Wait for a host that somebody else runs; never start or stop one."
        ),
    ] = False,
    rules_file: Annotated[
        Path | None,
        typer.Option("--rules", help="A YAML file: limits, quotas, quiet hours, policy."),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", help="Port of the API; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    address: Annotated[
        str,
        typer.Option(
            "--address", help="Address of the API; one that others reach needs TLS and tokens."
        ),
    ] = "127.0.0.1",
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="TLS: the certificate, as PEM.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="TLS: its key; readable by you alone.")
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", help="A host name under which clients reach the API; several."),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Serve an address that others reach without TLS or tokens."
        ),
    ] = False,
    service_file: Annotated[
        Path | None,
        typer.Option(
            "--service",
            help="A YAML file: topics of tenants, applications, request limits, webhooks.",
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Record every round in this folder.")
    ] = None,
    with_jobs: Annotated[
        bool, typer.Option("--with-jobs", help="On exit, stop the host and the jobs as well.")
    ] = False,
    log_level: Level = logs.LogLevel.INFO,
    log_json: AsJson = False,
) -> None:
    """Control jobs: observe, decide, act, explain. Ends on SIGTERM or Ctrl-C; the jobs go on."""
    announce(folders.state() / "daemon")
    # Slow to import: commands that are called meanwhile wait for the announced daemon.
    from trilithon.cli.serving import serve, serve_simulated  # noqa: PLC0415

    exposure = Exposure(address, port, certificate, key, tuple(names or ()), insecure)
    if engine is EngineName.SIMULATED:
        for given, option in (
            (per_tenant, "--per-tenant"),
            (applications, "--applications"),
            (attach, "--attach"),
        ):
            if given:
                raise typer.BadParameter("It needs --engine spark.", param_hint=option)
        serve_simulated(
            scenario, speed, rate, rules_file, exposure, service_file, record, log_level, log_json
        )
        return
    if scenario is not None:
        raise typer.BadParameter("It needs --engine simulated.", param_hint="--scenario")
    if applications is not None and not per_tenant:
        raise typer.BadParameter("It needs --per-tenant.", param_hint="--applications")
    if attach:
        _refuse_host_options(context)
    serve(
        master,
        kafka,
        kafka_settings,
        slots,
        executors,
        spark_settings,
        per_tenant,
        applications,
        attach,
        rules_file,
        exposure,
        service_file,
        record,
        with_jobs,
        log_level,
        log_json,
    )


def _refuse_host_options(context: typer.Context) -> None:
    """An option that would have no effect is refused, not ignored."""
    for name, option in HOST_OPTIONS.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(
                "With --attach, whoever runs the host decides this.", param_hint=option
            )
