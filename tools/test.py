"""What `make test` runs: the tests that need an engine beside those that need none, a process each.

Spark and Kafka keep about one core busy and often wait; the other tests compute. Two processes use
two cores, and neither knows of the other: each has its own folder for temporary files, and each
checks at its end that it leaves no process behind (`tests/conftest.py`). The first process prints
while it runs. The output of the second follows when both have ended.

On a busy machine a test may miss a deadline. A few tests that fail, of either process, are run
once more, alone, when all others have ended. Both runs are printed, and the closing lines name
those that passed only then. What fails twice fails. So does what running a test alone would not
show: an error in collection, a crash, something that is left behind.

Arguments go to pytest, in both processes: `python tools/test.py tests/control -k journal`.
"""

import argparse
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import NoReturn
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
ENGINE = "spark or kafka"
SLOWEST = ("--durations=25", "--durations-min=1")
# What pytest exits with when tests failed, and when it finds none.
FAILED, NO_TESTS = 1, 5
# More failures than this, in all parts together, are no missed deadlines.
MOST_AGAIN = 5
# Options that end a run at a failure: nobody knows how the other tests would have ended.
ENDS_EARLY = re.compile(r"-[lqsv]*x[lqsvx]*|--exitfirst|--maxfail.*")
WIDTH = 100
# How long a process may take to end after a signal: brokers and JVMs end first.
GRACE_S = 60.0


@dataclass(frozen=True)
class Part:
    """A process: the heading over its output, and the marks of the tests it runs."""

    title: str
    marks: str

    def command(self, report: Path, arguments: Sequence[str], marks: str = "") -> list[str]:
        """Pytest over these tests, or over those of them that also have the given marks."""
        selected = f"({marks}) and ({self.marks})" if marks else self.marks
        colour = "yes" if sys.stdout.isatty() else "auto"
        pytest = [sys.executable, "-m", "pytest", *SLOWEST, f"--color={colour}"]
        # With the file of each test in the report.
        pytest += ["-o", "junit_family=xunit1"]
        return [*pytest, f"--junit-xml={report}", *arguments, "-m", selected]


PARTS = (
    Part("Tests that start Spark or Kafka", ENGINE),
    Part("Tests that need no engine", f"not ({ENGINE})"),
)


@dataclass(frozen=True)
class Counts:
    """How many tests ended how."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0

    @classmethod
    def read(cls, report: Path) -> "Counts":
        """From pytest's JUnit file; all 0 if pytest ended before it wrote one."""
        if not report.exists():
            return cls()
        suites = ET.parse(report).getroot().iter("testsuite")  # noqa: S314 - written by pytest
        return total(cls._of(suite) for suite in suites)

    @classmethod
    def _of(cls, suite: ET.Element) -> "Counts":
        names = ("tests", "failures", "errors", "skipped")
        tests, failed, errors, skipped = (int(suite.get(name, "0")) for name in names)
        return cls(max(0, tests - failed - errors - skipped), failed, errors, skipped)

    def line(self, seconds: float, again: int = 0) -> str:
        """In the form of pytest's own closing line; `again` of them passed the second time only."""
        second = f" ({again} the second time)" if again else ""
        counts = [f"{self.passed} passed{second}", f"{self.failed} failed"]
        counts += [f"{self.errors} errors"] if self.errors else []
        counts += [f"{self.skipped} skipped"] if self.skipped else []
        minutes, rest = divmod(seconds, 60)
        times = f"in {seconds:.2f}s ({minutes:.0f}:{rest:02.0f} minutes)"
        return f" {', '.join(counts)} {times} ".center(WIDTH, "=")


def total(counts: Iterable[Counts]) -> Counts:
    rows = [(count.passed, count.failed, count.errors, count.skipped) for count in counts]
    return Counts(*map(sum, zip(*rows, strict=True)))


def exit_code(codes: Sequence[int]) -> int:
    """The first failure. A part without tests is none, unless no part has tests."""
    failures = [code for code in codes if code not in {0, NO_TESTS}]
    if failures:
        return failures[0]
    return 0 if 0 in codes else NO_TESTS


def run(arguments: Sequence[str], marks: str = "", parts: Sequence[Part] = PARTS) -> int:
    """Runs all parts at once and returns the exit code of the whole."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trilithon-tests-") as name:
        reports = [Path(name) / f"{number}.xml" for number in range(len(parts))]
        outputs = [report.with_suffix(".txt") for report in reports]
        heading(parts[0].title)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for part, report, output in zip(parts, reports, outputs, strict=True):
                command = part.command(report, arguments, marks)
                # Only the first writes to the terminal while they run. It also comes first on the
                # cores: most of its tests have deadlines, and few of the others.
                with output.open("wb") as file:
                    kept = file if processes else None
                    polite = ["nice"] if processes and shutil.which("nice") else []
                    processes.append(
                        subprocess.Popen([*polite, *command], cwd=ROOT, stdout=kept, stderr=kept)
                    )
            codes = [process.wait() for process in processes]
        finally:
            end(processes)
            for part, output in list(zip(parts, outputs, strict=True))[1:]:
                heading(part.title)
                print(output.read_text(encoding="utf-8", errors="replace"), end="", flush=True)
        counts = [Counts.read(report) for report in reports]
        failed: list[str] = []
        passed: list[str] = []
        if may_have_missed_deadlines(codes, reports, arguments):
            heading("Those that failed, once more")
            for number, part in enumerate(parts):
                names = failures(reports[number], arguments)
                if not names:
                    continue
                late = run_again(part, reports[number], names, arguments)
                twice = len(names) - len(late)
                codes[number] = FAILED if twice else 0
                first = counts[number]
                counts[number] = replace(
                    first, passed=first.passed + len(late), failed=twice, errors=0
                )
                failed += names
                passed += late
    heading("All tests")
    if failed:
        print(f"{len(failed)} failed at first; {len(passed)} of them passed alone:")
        print(*(name for name in failed if name in passed), sep="\n")
    print(total(counts).line(time.monotonic() - began, len(passed)), flush=True)
    return exit_code(codes)


def may_have_missed_deadlines(
    codes: Sequence[int], reports: Sequence[Path], arguments: Sequence[str]
) -> bool:
    """Whether running the tests that failed once more, alone, tells whether all is well: they are
    few, all others have been run, and no error came while pytest looked for tests or after the end
    of one, for what that one or another had left behind.
    """
    if FAILED not in codes or not {0, FAILED, NO_TESTS}.issuperset(codes):
        return False
    if any(map(ENDS_EARLY.fullmatch, arguments)):
        return False
    errors = [error for report in reports for case in cases(report) for error in case.iter("error")]
    if not all(error.get("message", "").startswith("failed on setup") for error in errors):
        return False
    return sum(len(failures(report, arguments)) for report in reports) <= MOST_AGAIN


def run_again(
    part: Part, report: Path, names: Sequence[str], arguments: Sequence[str]
) -> list[str]:
    """Runs these tests of a part alone; those that pass now."""
    report.unlink()
    given = arguments[:2] if arguments[:1] == ["-c"] else ()
    code = subprocess.call(part.command(report, [*given, *names]), cwd=ROOT)
    if code not in {0, FAILED} or not report.exists():
        return []
    good = {name_of(case, arguments) for case in cases(report) if not list(case.iter("skipped"))}
    good.difference_update(failures(report, arguments))
    return [name for name in names if name in good]


def cases(report: Path) -> list[ET.Element]:
    """The tests of pytest's JUnit file; none if pytest ended before it wrote one."""
    if not report.exists():
        return []
    return list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314 - written by pytest


def failures(report: Path, arguments: Sequence[str]) -> list[str]:
    """The tests that failed, or whose fixtures did, as pytest names them."""
    bad = [case for case in cases(report) if {"failure", "error"} & {part.tag for part in case}]
    return list(dict.fromkeys(name_of(case, arguments) for case in bad))


def name_of(case: ET.Element, arguments: Sequence[str]) -> str:
    """A test as pytest names it: file::class::test[parameters]. The report has the file where the
    function is written, which is another one if the class inherits it; the name of the class has
    the dotted path of the file before it.
    """
    folder = Path(arguments[1]).parent if arguments[:1] == ["-c"] else Path()
    file, classes = Path(case.get("file", "")), list[str]()
    dotted = case.get("classname", "").split(".")
    for length in range(len(dotted), 0, -1):
        path = Path("/".join(dotted[:length]) + ".py")
        if (ROOT / folder / path).exists():
            file, classes = path, dotted[length:]
            break
    return "::".join([str(folder / file), *classes, case.get("name", "")])


def end(processes: Sequence[subprocess.Popen[bytes]], grace_s: float = GRACE_S) -> None:
    """Interrupts what still runs, as the terminal does: pytest then ends what its tests started.
    What a shell started in the background ignores interrupts, and is terminated.
    """
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        running = [process for process in processes if process.poll() is None]
        for process in running:
            process.send_signal(stop)
        deadline = time.monotonic() + grace_s
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
    for process in processes:
        process.wait()


def heading(title: str) -> None:
    print(f"\n{title}\n{'─' * len(title)}", flush=True)


def main() -> NoReturn:
    options = argparse.ArgumentParser(description=__doc__, add_help=False)
    options.add_argument("-m", dest="marks", default="", help="only tests with these marks")
    known, arguments = options.parse_known_args()
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        sys.exit(run(arguments, known.marks))
    except KeyboardInterrupt:
        sys.exit(130)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
