"""Runs the engine of the daemon: one host process for all tenants, one per application, or one
that somebody else runs.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from trilithon import folders
from trilithon.cli.processes import application_sockets, socket_path
from trilithon.contract.engine import Engine
from trilithon.engines.abilities import REAL_TIME
from trilithon.engines.composite import CompositeEngine
from trilithon.engines.start_failure import forget_start_failure
from trilithon.errors import HostRuns, HostStarting, HostUnreachable, TrilithonError
from trilithon.service.application_host import ApplicationHost
from trilithon.service.daemon import Daemon
from trilithon.service.external_host import ExternalHost
from trilithon.service.keeper import HostKeeper, host_answers
from trilithon.service.reattach import ReattachingEngine
from trilithon.service.settings import ServiceSettings

Tell = Callable[[str], None]


class Hosting(ABC):
    """The host processes of a daemon, and the engine that reaches them."""

    engine: Engine
    # What the daemon says while it waits for the first answer of the engine, and its status.
    starting = ""
    status_before_start = "starting"
    failure: TrilithonError | None = None

    @abstractmethod
    def begin(self, running: Daemon, tell: Tell, end_daemon: Callable[[], None]) -> None:
        """Attaches to hosts that run, or starts what is needed, and does not wait. Calls
        `end_daemon` if the daemon cannot go on, because of `failure`.
        """

    @abstractmethod
    def socket_of(self, tenant: str) -> Path:
        """The socket of the host of a tenant, which is started if it does not run. For any thread;
        raises `HostStarting` as long as it does not answer.
        """

    @abstractmethod
    def end(self, tell: Tell) -> None:
        """Stops the hosts and their jobs."""


class SharedHost(Hosting):
    """One host for the jobs of all tenants."""

    def __init__(self, command: Sequence[str], settings: ServiceSettings) -> None:
        _refuse_applications()
        self._host = HostKeeper(
            socket_path(), [*command, *kafka_arguments(settings)], folders.state() / "host.log"
        )
        self.engine = ReattachingEngine(self._host.reach)
        self.starting = f"The engine is starting; its log is {self._host.log}."

    def begin(self, running: Daemon, tell: Tell, end_daemon: Callable[[], None]) -> None:
        """In a thread of its own: meanwhile the daemon answers, and says that it is starting. If
        there is no host in the end, that ends the daemon.
        """
        self._host.tell, self._host.on_change = tell, running.wake

        def start() -> None:
            try:
                self._host.ensure()
            except TrilithonError as error:
                self.failure = error
                end_daemon()
                return
            _announce_engine(running, tell)

        threading.Thread(target=start, name="engine-start", daemon=True).start()

    def socket_of(self, tenant: str) -> Path:
        del tenant
        return self._host.path

    def end(self, tell: Tell) -> None:
        tell("stopping the host and its jobs; their checkpoints stay")
        try:
            self._host.end()
        except HostUnreachable:
            tell("the host is gone already")


class AttachedHost(Hosting):
    """One host for the jobs of all tenants that somebody else runs. It is never started here."""

    status_before_start = "waiting"

    def __init__(self) -> None:
        _refuse_applications()
        self._host = ExternalHost(socket_path())
        self.engine = ReattachingEngine(self._host.reach)
        self.starting = self._host.waiting

    def begin(self, running: Daemon, tell: Tell, end_daemon: Callable[[], None]) -> None:
        """In a thread of its own: meanwhile the daemon answers, and says what it waits for."""
        del end_daemon  # its supervisor may start the host at any time

        def wait() -> None:
            self._host.wait(tell)
            _announce_engine(running, tell)

        threading.Thread(target=wait, name="engine-wait", daemon=True).start()

    def socket_of(self, tenant: str) -> Path:
        del tenant
        return self._host.path

    def end(self, tell: Tell) -> None:
        tell("the engine host goes on: this daemon did not start it")


class ApplicationHosts(Hosting):
    """A host for each tenant or group of tenants, started when its first job comes."""

    def __init__(self, command: Sequence[str], slots: int, settings: ServiceSettings) -> None:
        _refuse(
            [path for path in [socket_path()] if host_answers(path)],
            "A host of all tenants runs in this state folder",
            "Serve without --per-tenant, or end it first",
        )
        self._command, self._settings = command, settings
        self._tell: Tell = lambda _: None
        self.engine = self._composite = CompositeEngine(
            self._application,
            settings.application_of,
            slots=slots,
            how=REAL_TIME,
            running=application_sockets(),
        )

    def _application(self, name: str) -> ApplicationHost:
        path = socket_path(name)
        forget_start_failure(path)
        kafka = kafka_arguments(self._settings, name)
        command = [*self._command, *kafka, "--application", name]
        keeper = HostKeeper(path, command, path.with_suffix(".log"))
        keeper.tell = lambda message: self._tell(f"{name}: {message}")
        keeper.on_change = self._wake
        return ApplicationHost(keeper)

    def _wake(self) -> None:
        self._composite.on_return()

    def begin(self, running: Daemon, tell: Tell, end_daemon: Callable[[], None]) -> None:
        del end_daemon  # an application that does not start is the trouble of its jobs alone
        self._tell = tell
        self._composite.on_return = running.wake
        running.applications = self._composite.applications
        tell("one application per tenant; each starts with its first job")

    def socket_of(self, tenant: str) -> Path:
        path = socket_path(name := self._settings.application_of(tenant))
        if not host_answers(path):
            self._composite.want(tenant)
            self._composite.on_return()
            raise HostStarting(f"The application {name} is being started.", "Try again soon.")
        return path

    def end(self, tell: Tell) -> None:
        tell("stopping all applications and their jobs; their checkpoints stay")
        self._composite.end()


def kafka_arguments(settings: ServiceSettings, application: str | None = None) -> list[str]:
    """The Kafka principals that a host gets: of all tenants, or of those of its application. The
    names of the files only: their secrets are on no command line.
    """
    return [
        word
        for tenant, file in settings.kafka_files().items()
        if application in {None, settings.application_of(tenant)}
        for word in ("--tenant-kafka", f"{tenant}={file}")
    ]


def _announce_engine(running: Daemon, tell: Tell) -> None:
    """Ends the daemon's time of starting: its engine answers."""
    running.starting = ""
    running.wake()
    tell("the engine is ready")


def _refuse_applications() -> None:
    _refuse(
        [path for path in application_sockets().values() if host_answers(path)],
        "Hosts of single applications run in this state folder",
        "Serve with --per-tenant, or end them first",
    )


def _refuse(running: Sequence[Path], why: str, hint: str) -> None:
    """A job must not run in two applications at once: both would write to its checkpoint."""
    if running:
        raise HostRuns(
            f"{why} ({', '.join(map(str, running))}): its jobs would be started a second time.",
            f"{hint} (`trilithon serve --with-jobs` as they were started, then Ctrl-C).",
        )
