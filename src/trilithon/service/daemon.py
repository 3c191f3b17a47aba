"""Runs a daemon: alone in its folder, its loop in a thread, with a clean stop."""

import gc
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trilithon import folders, logs
from trilithon.contract.engine import Engine
from trilithon.control.clock import Clock, SystemClock
from trilithon.control.cluster_commands import ClusterCommands
from trilithon.control.commands import JobCommands
from trilithon.control.journal import FILE, Journal
from trilithon.control.loop import Controller, Round
from trilithon.control.recorder import RecordingFolder
from trilithon.control.rules import Rules
from trilithon.engines.composite import ApplicationStatus
from trilithon.errors import DaemonRuns, Problem
from trilithon.model.job import Job
from trilithon.plugins import policy
from trilithon.service.access import store as access_store
from trilithon.service.access.gate import Access
from trilithon.service.access.rates import RateLimiter
from trilithon.service.access.store import AccessStore
from trilithon.service.monitor.monitor import Monitor
from trilithon.service.peek import EdgeTopics, ReadEdge, ReadLatest
from trilithon.service.python_jobs import PythonJobs
from trilithon.service.scaling_audit import ScalingAudit
from trilithon.service.settings import ServiceSettings

LOOK_EVERY_S: Final = 2.0
WATCH_EVERY_S: Final = 5.0
_log = logs.logger()


@dataclass
class Daemon:
    """A controller whose rounds run in a thread."""

    controller: Controller
    journal: Journal
    # Every reason why the engine cannot run a valid job, as far as can be said without asking it.
    unsupported: Callable[[Job], Iterable[Problem]] = lambda _: ()
    # Reads the latest records of a topic; None if the engine has no topics.
    read_latest: ReadLatest | None = None
    edge_topics: EdgeTopics = lambda _: {}
    # Reads the latest records of an edge that no topic carries; None if the engine cannot.
    read_edge: ReadEdge | None = None
    settings: ServiceSettings = field(default_factory=ServiceSettings)
    # The applications of the engine, if it has several.
    applications: Callable[[], Sequence[ApplicationStatus]] = lambda: ()
    # Whether others than this machine can reach the API.
    public: bool = False
    # Who may call the API.
    access: Access = field(kw_only=True)
    commands: JobCommands = field(init=False)
    python_jobs: PythonJobs = field(init=False)
    scaling_audit: ScalingAudit = field(init=False)
    cluster_commands: ClusterCommands = field(init=False)
    failure: str = ""
    # What the daemon waits for before the engine can be reached for the first time.
    starting: str = ""
    # Its status meanwhile: `starting`, or `waiting` for a host that somebody else runs.
    status_before_start: str = "starting"
    # How many seconds of the controller's clock pass in a second: above 1 in a simulation only.
    speed: float = 1.0
    # How many commands were carried out.
    changes: int = 0

    def __post_init__(self) -> None:
        self.commands = JobCommands(self.controller)
        self.python_jobs = PythonJobs(self.settings)
        self.scaling_audit = ScalingAudit(self.controller, self.access.store)
        self.cluster_commands = ClusterCommands(self.controller)
        self.monitor = Monitor(
            self.controller,
            self.access.store,
            self.settings.signed_webhooks(),
            is_valid=self.access.is_valid,
        )
        self._blind = ""
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop", daemon=True)
        self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._watchdog.start()

    def wake(self) -> None:
        """Starts the next round at once: an owner waits for it."""
        self.changes += 1
        self._wake.set()

    def stop(self) -> None:
        """Stops the loop after the current round."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self.monitor.close()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def loop_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def owner_only(self) -> bool:
        """Whether nobody but the owner of the state folder can call the API."""
        return not self.public and not self.access.store.has_tokens()

    @property
    def token(self) -> str:
        """The token of whoever owns the state folder."""
        return self.access.local_token

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                began = time.monotonic()
                done = self.controller.round()
                took_s = time.monotonic() - began
                self._log_round(done)
                self.monitor.after_round(done, took_s)
                self.scaling_audit.after_round()
                wait_s, self.failure = done.next_s, ""
            except Exception as error:  # noqa: BLE001 - the next round may succeed
                failure = f"{type(error).__name__}: {error}"
                # The same failure may repeat each round: one traceback is enough.
                fresh = failure != self.failure
                number = self.controller.state.round
                _log.error("round_failed", round=number, failure=failure, exc_info=fresh)
                self.failure = failure
                self.monitor.tally.failed()
                wait_s = self.controller.rules.limits.round_s
            self._await_round(wait_s / self.speed)
            self._wake.clear()

    def _watch(self) -> None:
        """Alerts if rounds are not completed any more, whatever holds them up."""
        while not self._stop.wait(WATCH_EVERY_S):
            self.monitor.watch()

    def _await_round(self, wait_s: float) -> None:
        """Waits for the next round, and looks at the jobs meanwhile. A host that is lost or a job
        that failed is seen within two seconds, however rare the rounds are.
        """
        deadline = time.monotonic() + wait_s
        while (left_s := deadline - time.monotonic()) > LOOK_EVERY_S:
            if self._wake.wait(LOOK_EVERY_S):
                return
            try:
                if not self.controller.look():
                    return
            except Exception:  # noqa: BLE001 - the next round may succeed
                _log.exception("look_failed", round=self.controller.state.round)
        self._wake.wait(left_s)

    def _log_round(self, done: Round) -> None:
        if done.blind and self.starting:
            return  # that is no surprise
        if done.blind and done.blind != self._blind:
            _log.warning("engine_not_reached", round=done.number, reason=done.blind)
        elif self._blind and not done.blind:
            _log.info("engine_reached_again", round=done.number)
        self._blind = done.blind
        for ruling in done.rulings:
            if ruling.granted:
                decided = ruling.decision
                _log.info(
                    "decided",
                    decision=decided.id,
                    job=decided.job,
                    policy=decided.issuer or self.controller.policy.name,
                    reason=decided.reason,
                    round=done.number,
                )
        for result in done.results:
            _log.info(
                "action_ended",
                decision=result.planned.decision,
                action=result.planned.id,
                status=result.outcome.status.value,
                code=result.outcome.code,
                round=done.number,
            )
        _log.debug("round_done", round=done.number, decisions=len(done.rulings), next_s=done.next_s)


def calm_collector() -> None:
    """Runs the garbage collector less often. A round makes many small tuples and few cycles;
    searching everything that a daemon holds at Python's usual rate can cost as much as the round.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@contextmanager
def daemon(
    engine: Engine,
    rules: Rules,
    folder: Path,
    record: Path | None = None,
    clock: Clock | None = None,
    unsupported: Callable[[Job], Iterable[Problem]] = lambda _: (),
    starting: str = "",
    settings: ServiceSettings | None = None,
    speed: float = 1.0,
) -> Iterator[Daemon]:
    """Runs a daemon in a state folder. A second daemon in the same folder is refused."""
    refusal = DaemonRuns(
        f"A daemon runs in {folder} already.", "Use it, stop it, or choose another --state."
    )
    with ExitStack() as ending:
        ending.enter_context(folders.locked(folder, "state", "TRILITHON_STATE", 0o700, refusal))
        journal = Journal(folder / FILE)
        ending.callback(journal.close)
        recorder = None
        if record is not None:
            recorder = ending.enter_context(RecordingFolder(record))
        controller = Controller(
            engine,
            journal,
            policy(rules.policy, rules.parameters),
            rules,
            clock or SystemClock(),
            recorder,
            steady_s=time.monotonic if clock is None else None,
        )
        store = AccessStore(folder / access_store.FILE, time.time)
        ending.callback(store.close)
        settings = settings or ServiceSettings()
        limiter = RateLimiter(settings.requests.per_s, settings.requests.burst)
        access = Access(store, secrets.token_urlsafe(32), limiter=limiter)
        running = Daemon(controller, journal, unsupported, settings=settings, access=access)
        running.starting, running.speed = starting, speed
        ending.callback(running.stop)
        running.start()
        yield running
