"""The tools of a developer: the tests are run in two processes, and what they say is added up."""

import html
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools import demo_picture
from tools import test as runner

PASSES = "def test_that_passes():\n    pass\n"
FAILS = "import pytest\n\n@pytest.mark.spark\ndef test_that_fails():\n    assert 1 == 2\n"
SKIPS = "import pytest\n\ndef test_that_is_skipped():\n    pytest.skip()\n"
SETTINGS = "[pytest]\nmarkers =\n    spark\n    kafka\n    slow\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A project of its own; the arguments that run its tests. Pytest loads no other plugins: that
    takes ten times as long as these tests do.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    return ["-c", str(tmp_path / "pytest.ini"), str(tmp_path)]


def test_both_parts_are_printed_and_added_up(
    tmp_path: Path, project: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_pure.py").write_text(PASSES + SKIPS)
    (tmp_path / "test_engine.py").write_text(FAILS)
    assert runner.run(project) == 1
    printed = capfd.readouterr().out
    first, second, closing = (
        printed.index(text) for text in (*(part.title for part in runner.PARTS), "All tests")
    )
    assert first < printed.index("test_that_fails") < second < closing
    assert "1 passed, 1 failed, 1 skipped in" in printed[closing:]


ONCE = """\
import pathlib
import pytest

def late_once(name):
    seen = pathlib.Path(__file__).with_suffix("." + name)
    late = not seen.exists()
    seen.touch()
    assert not late

@pytest.mark.spark
@pytest.mark.parametrize("way", ["a b[c]::d", "on time"])
def test_late(way):
    if way != "on time":
        late_once("engine")
"""
INHERITED = """\
class Suite:
    def test_it_keeps_the_contract(self):
        from test_engine import late_once
        late_once("suite")
"""
PURE = """\
import pytest
from suite import Suite
from test_engine import late_once

class TestOfAClass(Suite):
    pass

@pytest.fixture
def server():
    late_once("fixture")

def test_with_a_slow_fixture(server):
    pass
"""


def test_tests_of_both_parts_that_fail_once_are_run_again_and_named(
    tmp_path: Path, project: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Names with blanks and brackets, fixtures, and a class that inherits from another file."""
    (tmp_path / "test_engine.py").write_text(ONCE)
    (tmp_path / "suite.py").write_text(INHERITED)
    (tmp_path / "test_pure.py").write_text(PURE)
    assert runner.run(project) == 0
    printed = capfd.readouterr().out
    closing = printed[printed.index("All tests") :]
    assert "3 failed at first; 3 of them passed alone:" in closing
    assert [line for line in closing.splitlines() if "::" in line] == [
        f"{tmp_path}/test_engine.py::test_late[a b[c]::d]",
        f"{tmp_path}/test_pure.py::TestOfAClass::test_it_keeps_the_contract",
        f"{tmp_path}/test_pure.py::test_with_a_slow_fixture",
    ]
    assert "4 passed (3 the second time), 0 failed in" in closing


def test_what_fails_twice_fails(
    tmp_path: Path, project: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_engine.py").write_text(ONCE)
    (tmp_path / "test_pure.py").write_text(FAILS.replace("@pytest.mark.spark\n", ""))
    assert runner.run(project) == 1
    printed = capfd.readouterr().out
    closing = printed[printed.index("All tests") :]
    assert "2 failed at first; 1 of them passed alone:" in closing
    assert "test_pure.py" not in closing
    assert "2 passed (1 the second time), 1 failed in" in closing
    assert printed.count("test_pure.py::test_that_fails") >= 2


def test_many_failures_are_no_missed_deadlines(
    tmp_path: Path, project: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """However they are spread over the parts."""
    tests = [FAILS.replace("test_that_fails", f"test_{n}") for n in range(runner.MOST_AGAIN)]
    (tmp_path / "test_engine.py").write_text("\n".join(tests))
    (tmp_path / "test_pure.py").write_text(FAILS.replace("@pytest.mark.spark\n", ""))
    assert runner.run(project) == 1
    assert "once more" not in capfd.readouterr().out


LEAVES = """\
import pytest

@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left():
    yield
    assert "a process" == ""

def test_that_passes():
    pass
"""
CRASHES = "import os\n\ndef test_that_ends_pytest():\n    os._exit(3)\n"


@pytest.mark.parametrize(
    ("pure", "options"),
    [
        (LEAVES, ()),
        ("import nothing_of_the_kind\n", ()),
        (CRASHES, ()),
        (PASSES, ("-qx",)),
        (PASSES, ("--maxfail=2",)),
    ],
    ids=["left behind", "not collected", "crashed", "stopped", "stopped later"],
)
def test_what_no_second_run_would_show_fails_at_once(
    tmp_path: Path,
    project: list[str],
    capfd: pytest.CaptureFixture[str],
    pure: str,
    options: tuple[str, ...],
) -> None:
    """A test that was only late beside it changes nothing."""
    (tmp_path / "test_engine.py").write_text(ONCE)
    (tmp_path / "test_pure.py").write_text(pure)
    assert runner.run([*project, *options]) != 0
    assert "once more" not in capfd.readouterr().out


def test_a_part_without_tests_is_no_failure(
    tmp_path: Path, project: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_pure.py").write_text(PASSES)
    assert runner.run(project) == 0
    assert "1 passed, 0 failed in" in capfd.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("codes", "whole"),
    [((0, 0), 0), ((5, 0), 0), ((5, 5), 5), ((0, 1), 1), ((2, 0), 2), ((-9, 0), -9)],
)
def test_the_whole_fails_if_a_part_fails(codes: tuple[int, ...], whole: int) -> None:
    assert runner.exit_code(codes) == whole


def test_every_test_belongs_to_one_part() -> None:
    marks = {part.marks for part in runner.PARTS}
    assert marks == {runner.ENGINE, f"not ({runner.ENGINE})"}


def test_marks_that_are_asked_for_narrow_each_part() -> None:
    pure = runner.PARTS[1].command(Path("report.xml"), ["-x"], marks="slow")
    assert pure[-3:] == ["-x", "-m", f"(slow) and (not ({runner.ENGINE}))"]


WAITS = "import time; print('ready', flush=True); time.sleep(600)"


def waiting(program: str) -> subprocess.Popen[bytes]:
    """A process that is ready to be ended."""
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603 - our own program
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdout.close()
    return process


def test_whoever_still_runs_is_interrupted() -> None:
    ends = f"import signal, sys; signal.signal(signal.SIGINT, lambda *_: sys.exit(7)); {WAITS}"
    process = waiting(ends)
    runner.end([process])
    assert process.returncode == 7


def test_whoever_ignores_the_interrupt_is_terminated() -> None:
    """As processes do that a shell without a terminal started in the background."""
    ignores = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {WAITS}"
    process = waiting(ignores)
    runner.end([process], grace_s=2.0)
    assert process.returncode == -signal.SIGTERM


def test_the_picture_of_the_demo_shows_the_screen_and_asks_nobody_for_fonts() -> None:
    drawn = demo_picture.draw("$ make demo\n\x1b[1mads/pageload\x1b[0m  join 1 → 4\n\n\n")
    assert "ads/pageload" in drawn
    assert "font-face" not in drawn
    assert drawn == demo_picture.draw("$ make demo\n\x1b[1mads/pageload\x1b[0m  join 1 → 4")


def test_the_words_below_the_picture_of_the_demo_are_those_of_its_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = (
        "$ make demo\nhttp://127.0.0.1:1/dashboard/login?code=x\n"
        "job  of  before  at worst  at the end  slots\n"
        "\x1b[1mall\x1b[0m  80      80      50.0          79\n"
    )
    (tmp_path / "screen").write_text(screen)
    (tmp_path / "README.md").write_text("a\n![old](docs/images/demo.svg)\nb\n")
    monkeypatch.setattr(demo_picture, "FILE", tmp_path / "demo.svg")
    monkeypatch.setattr(demo_picture, "README", tmp_path / "README.md")
    monkeypatch.setattr(sys, "argv", ["demo_picture.py", "--screen", str(tmp_path / "screen")])
    demo_picture.main()
    first, line, last = (tmp_path / "README.md").read_text().splitlines()
    assert (first, last) == ("a", "b")
    assert "falls from 80 to 50.0," in line
    assert "is 79 at the end](docs/images/demo.svg)" in line
    assert "/dashboard/login" in (tmp_path / "demo.svg").read_text().replace("&#160;", " ")
    for wanting in (screen.replace("dashboard", "x"), screen.replace("all", "some")):
        with pytest.raises(SystemExit, match="did not end well"):
            demo_picture.caption(wanting)


def test_the_readme_says_what_the_picture_of_the_demo_shows() -> None:
    drawn = demo_picture.FILE.read_text(encoding="utf-8")
    lines: dict[str, str] = {}
    for line, text in re.findall(r"#demo-line-(\d+)\)\">(.*?)</text>", drawn, re.DOTALL):
        lines[line] = lines.get(line, "") + html.unescape(text)
    (totals,) = (line for line in lines.values() if line.startswith("all"))
    _, before, worst, end = re.findall(r"[\d.]+", totals)
    words = (
        f"falls from {before} to {worst}, Henge moves slots, and the utility is {end} at the end"
    )
    assert words in demo_picture.README.read_text(encoding="utf-8")
