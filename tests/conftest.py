"""Settings that all tests share."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.measured import Measured
from trilithon.engines.spark.background_process import command_line
from trilithon.engines.spark.broker import PROCESS_MARK, EmbeddedBroker

# Two cores and other work beside the tests: a slow example is no finding.
settings.register_profile(
    "default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
RUN = "TRILITHON_TEST_RUN"
ENDING_S = 120.0
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output that does not depend on who runs the tests where."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The first to be set up and so the last to look: after the run no process of it is there,
    neither a broker nor a JVM, a host, a daemon, a load generator or a browser.
    """
    base = tmp_path_factory.getbasetemp()
    os.environ[RUN] = str(base)
    yield
    deadline = time.monotonic() + ENDING_S
    while (left := processes_of(str(base))) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == {}
    assert brokers_under(base) == []


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    return Measured(record_property)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have measured."""
    reports = [each for some in terminalreporter.stats.values() for each in some]
    by_test = {
        report.nodeid: report.user_properties
        for report in reports
        if isinstance(report, pytest.TestReport) and report.user_properties
    }
    if by_test:
        terminalreporter.section("measured")
    for test, properties in by_test.items():
        terminalreporter.write_line(test.rpartition("/")[2])
        for name, value in properties:
            terminalreporter.write_line(f"  {name}: {value}")


def processes_of(run: str) -> dict[int, str]:
    """The processes that a run of the tests has started and that are still there: whoever is
    started has its mark, as children have it from their parents.
    """
    mark = f"{RUN}={run}".encode()
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        try:
            marked = mark in (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is somebody else's
        words = command_line(pid) if marked and pid != os.getpid() else []
        # Python's own helpers end with the process that looks.
        if words and not any("multiprocessing" in word for word in words):
            found[pid] = " ".join(words)[:200]
    return found


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """The one broker of the run, started by the first test that asks for it."""
    with EmbeddedBroker.start(tmp_path_factory.mktemp("kafka") / "broker") as broker:
        yield broker


def brokers_under(folder: Path) -> list[int]:
    """The processes that are brokers of this folder or of one inside it."""
    mark = f"{PROCESS_MARK}{folder.resolve()}"
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if any(word.startswith(mark) for word in command_line(pid))]
