"""Python jobs: from the administrator's folders only, run by the engine host, not by the daemon."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from tests.service.test_api import PATIENCE_S, until
from trilithon.cli import job_commands
from trilithon.engines.python_jobs import load_python
from trilithon.engines.remote import RemoteEngine
from trilithon.service.daemon import Daemon
from trilithon.service.python_jobs import AT_ONCE, PythonJobs
from trilithon.service.settings import ServiceSettings

# The file leaves a note of the process that ran it.
JOB = """
import os, sys
from pathlib import Path
from trilithon import pipelines as tp

print("a print does not disturb the answer")
Path(__file__).with_suffix(".ran").write_text(
    f"{os.getpid()} {os.getppid()} {'SECRET_OF_THE_HOST' in os.environ}"
)

@tp.source(subscribe="ads-in")
def clicks():
    return "v BIGINT"

@tp.operator(parallelism=2)
def double(clicks):
    return clicks.select("2 * v AS v")

@tp.sink(topic="ads-out")
def out(double): ...

job = tp.job("doubled", tenant="ads")
"""
HOST = """
import sys
from pathlib import Path
from tests.fakes import FakeEngine
from trilithon.engines.host import Host
Host(FakeEngine(), Path(sys.argv[1])).serve()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "jobs"
    made.mkdir(mode=0o755)
    (made / "doubled.py").write_text(JOB)
    return made


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """An engine host in a process of its own: its process id and its socket."""
    path = tmp_path_factory.mktemp("host") / "host.sock"
    environment = {**os.environ, "SECRET_OF_THE_HOST": "hunter2"}
    root = Path(__file__).resolve().parent.parent.parent
    process = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-c", HOST, str(path)], cwd=root, env=environment
    )
    until(path.exists)
    yield process.pid, path
    process.terminate()
    process.wait(timeout=PATIENCE_S)


Through = Callable[[Path | None], TestClient]


@pytest.fixture
def through(running: Daemon, client: TestClient, host: tuple[int, Path]) -> Through:
    """The API of a daemon with this folder for Python jobs, in front of the host."""

    def load(_: str, file: str, folders: Sequence[str]) -> Any:
        with closing(RemoteEngine(host[1])) as remote:
            return remote.load_python(file, folders)

    def serve(folder: Path | None) -> TestClient:
        named = [] if folder is None else [str(folder)]
        settings = ServiceSettings.of(
            {
                "tenants": {
                    "ads": {
                        "read_topics": ["ads-"],
                        "write_topics": ["ads-"],
                        "python_folders": named,
                    },
                    "shop": {},
                }
            }
        )
        running.settings = settings
        running.python_jobs = PythonJobs(settings, load)
        return client

    return serve


def put(client: TestClient, file: Path | str, job: str = "ads/doubled") -> Any:
    return client.put(f"/jobs/{job}/python", json={"file": str(file)})


def codes(answer: Any) -> list[str]:
    assert answer.status_code == 422, answer.text
    return [problem["code"] for problem in answer.json()["problems"]]


def test_the_host_runs_the_file_in_a_child_and_the_daemon_never_opens_it(
    through: Through, folder: Path, host: tuple[int, Path]
) -> None:
    """The test's process is the daemon's. Python tells a hook of every file that is opened and
    every piece of code that is run.
    """
    seen: list[str] = []
    watching = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not watching:
            return
        if event in {"open", "import"}:
            seen.append(str(arguments[0]))
        elif event == "exec":
            seen.append(str(getattr(arguments[0], "co_filename", "")))
        elif event == "compile":
            seen.append(str(arguments[1]))

    sys.addaudithook(hook)
    client = through(folder)
    answer = put(client, folder / "doubled.py")
    Path(__file__).read_bytes()  # what the hook does see
    watching.clear()
    assert answer.status_code == 201, answer.text
    assert __file__ in seen
    assert not [name for name in seen if str(folder) in name]
    child, parent, inherits = (folder / "doubled.ran").read_text().split()
    assert int(child) not in {os.getpid(), host[0]}
    assert int(parent) == host[0]
    assert inherits == "False"
    # What was accepted is data like any other spec, and the audit log says where it came from.
    job = client.get("/jobs/ads/doubled").json()
    assert job["spec"]["operators"][0]["select"] == ["2 * v AS v"]
    assert client.get("/audit").json()[-1]["action"] == f"job applied from {folder}/doubled.py"
    assert put(client, folder / "doubled.py").json()["impact"] == "none"


def test_a_file_outside_of_the_named_folders_is_refused_and_not_run(
    through: Through, folder: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "jobs-of-others"
    elsewhere.mkdir()
    (elsewhere / "doubled.py").write_text(JOB)
    (folder / "link.py").symlink_to(elsewhere / "doubled.py")
    client = through(folder)
    for file in (
        elsewhere / "doubled.py",
        f"{folder}/../jobs-of-others/doubled.py",
        "doubled.py",
        folder / "doubled.txt",
        folder / "link.py",  # only the host can see where it leads
        folder / "absent.py",
        "/etc/passwd",
    ):
        assert codes(put(client, file)) == ["PYTHON_NOT_ALLOWED"], file
    assert codes(put(client, folder / "doubled.py", "shop/doubled")) == ["PYTHON_NOT_ALLOWED"]
    assert codes(put(through(None), folder / "doubled.py")) == ["PYTHON_NOT_ALLOWED"]
    assert not list(tmp_path.rglob("*.ran"))
    assert client.get("/jobs").json() == []


def test_a_file_that_everybody_can_change_is_refused(folder: Path) -> None:
    file = folder / "doubled.py"
    for place in (file, folder):
        mode = place.stat().st_mode
        place.chmod(0o777)
        (problem,) = load_python(str(file), [str(folder)])["problems"]
        assert problem["code"] == "PYTHON_NOT_ALLOWED"
        assert "Others can change" in problem["message"]
        place.chmod(mode)
    assert not (folder / "doubled.ran").exists()


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("raise RuntimeError('no')", "PYTHON_FAILED", "line 1: The file failed: RuntimeError: no"),
        ("import os; os._exit(7)", "PYTHON_FAILED", "ended with 7"),
        ("x = bytearray(3 << 30)", "PYTHON_FAILED", "MemoryError"),
        ("x = 1", "NOT_A_JOB", "defines no job"),
    ],
)
def test_a_file_that_fails_is_refused_and_the_host_goes_on(
    source: str, code: str, message: str, through: Through, folder: Path
) -> None:
    (folder / "bad.py").write_text(source)
    client = through(folder)
    answer = put(client, folder / "bad.py")
    assert codes(answer) == [code]
    assert message in answer.json()["problems"][0]["message"]
    assert put(client, folder / "doubled.py").status_code == 201


def test_a_file_that_hangs_is_ended(folder: Path) -> None:
    (folder / "hangs.py").write_text("import time\ntime.sleep(600)")
    began = time.monotonic()
    (problem,) = load_python(str(folder / "hangs.py"), [str(folder)], timeout_s=1.0)["problems"]
    assert time.monotonic() - began < 300  # long before it would end by itself
    assert (problem["code"], "more than 1 s" in problem["message"]) == ("PYTHON_FAILED", True)


def test_the_rules_of_the_tenant_hold_for_python_jobs(through: Through, folder: Path) -> None:
    (folder / "doubled.py").write_text(JOB.replace("ads-out", "shop-out"))
    assert codes(put(through(folder), folder / "doubled.py")) == ["TOPIC_NOT_ALLOWED"]
    assert codes(put(through(folder), folder / "doubled.py", "ads/other")) == ["NAME_MISMATCH"]


def test_only_a_few_files_are_loaded_at_once(running: Daemon, client: TestClient) -> None:
    """Each occupies a thread of the daemon while it runs."""
    settings = ServiceSettings.of({"python_folders": ["/jobs"]})
    answers: list[int] = []

    def load(*_: Any) -> Any:
        if len(answers) < AT_ONCE:
            answers.append(put(client, "/jobs/b.py").status_code)
        return {"jobs": []}

    running.python_jobs = PythonJobs(settings, load)
    put(client, "/jobs/a.py")
    assert 429 in answers


def test_a_daemon_without_a_host_loads_no_python(client: TestClient, running: Daemon) -> None:
    running.python_jobs = PythonJobs(ServiceSettings.of({"python_folders": ["/jobs"]}))
    answer = put(client, "/jobs/a.py")
    assert codes(answer) == ["PYTHON_NOT_ALLOWED"]
    assert "no engine host" in json.dumps(answer.json())


@pytest.mark.parametrize("folder", ["jobs", "/", "/srv/../etc", ""])
def test_a_folder_is_named_in_full(folder: str) -> None:
    with pytest.raises(Exception, match="full name of a folder"):
        ServiceSettings.of({"python_folders": [folder]})


def test_the_command_names_the_job_and_the_file_on_the_host(
    through: Through, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = through(folder)

    class OverTheTest:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing to close."""

        def put(self, path: str, body: Any, **params: Any) -> Any:
            return served.put(path, json=body, params=params).json()

    monkeypatch.setattr(job_commands, "client", lambda _: OverTheTest())
    command = ["load", "ads/doubled", str(folder / "doubled.py")]
    planned = CliRunner().invoke(job_commands.app, [*command, "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert served.get("/jobs").json() == []
    done = CliRunner().invoke(job_commands.app, [*command, "-o", "json"])
    assert json.loads(done.stdout)[0]["job"] == "ads/doubled"
    assert CliRunner().invoke(job_commands.app, ["load", "doubled", "x.py"]).exit_code == 2
