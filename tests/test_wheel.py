"""A wheel built from a clean checkout is the whole product: it runs a job where it is installed."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.kafka import Kafka
from trilithon.spec.job_file import load_job
from trilithon.workloads.load_generator import generate
from trilithon.workloads.records import Records
from trilithon.workloads.shapes import Constant

ROOT = Path(__file__).resolve().parent.parent
JAR = "trilithon/engines/spark/trilithon-probe.jar"
JOB = """\
name: from-a-wheel
sources:
  - name: clicks
    options: {subscribe: wheel-in, startingOffsets: earliest}
    schema: user STRING, url STRING
    partitions: 1
operators:
  - {name: hosts, input: clicks, select: ["user", "parse_url(url, 'HOST') AS host"]}
sinks: [{name: out, input: hosts, options: {topic: wheel-out}}]
"""


def run(
    *command: object, cwd: Path = ROOT, timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Runs a program that must not see the sources of this checkout."""
    return subprocess.run(  # noqa: S603 - our own programs
        [str(part) for part in command],
        cwd=cwd,
        timeout=timeout,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )


def clean_checkout(folder: Path) -> Path:
    """The files that git has, or would have: no jar among them."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    assert not (folder / "src" / JAR).exists()
    return folder


def build(checkout: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """As `pip wheel .` does, with the packages of this environment: a test has no index."""
    offline = ("--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "wheel", "--wheel-dir", into)
    return run(*pip, *offline, checkout, cwd=checkout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = build(clean_checkout(folder / "checkout"), folder / "dist")
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (folder / "dist").glob("trilithon-*.whl")
    return built


def test_an_isolated_build_uses_the_pyspark_that_is_installed() -> None:
    """It fetched PySpark's sources, 400 MB, and built a wheel of them: four minutes."""
    code = """
import sys, importlib.util
sys.path = ["src", *(path for path in sys.path if "site-packages" not in path)]
assert importlib.util.find_spec("pyspark") is None
from trilithon.engines.spark import probe
print(probe.spark_jars())
"""
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip()).parent
    assert folder == Path(sysconfig.get_path("purelib")) / "pyspark" / "jars"
    assert any(folder.glob("spark-core_*.jar"))


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a new environment: the wheel, and all other packages from here."""
    folder = tmp_path_factory.mktemp("environment") / "env"
    assert run(sys.executable, "-m", "venv", "--without-pip", folder).returncode == 0
    python = folder / "bin" / "python"
    offline = ("--no-deps", "--no-index", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "--python", python)
    done = run(*pip, "install", *offline, wheel)
    assert done.returncode == 0, done.stderr
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "trilithon"


@pytest.mark.slow
def test_the_build_compiles_the_probe(wheel: Path) -> None:
    """`pip install` gave a product that could not run a job: nobody had built its jar."""
    with zipfile.ZipFile(wheel) as archive, archive.open(JAR) as jar, zipfile.ZipFile(jar) as probe:
        assert "io/trilithon/probe/ProbePlugin.class" in probe.namelist()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kafka
def test_a_job_runs_from_an_installed_wheel(
    program: Path, kafka: EmbeddedBroker, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    where = "import trilithon; print(trilithon.__file__)"
    imported = run(program.with_name("python"), "-c", where, cwd=tmp_path).stdout
    assert imported.startswith(str(program.parent.parent))
    create_topics(Kafka(kafka.address), [load_job(tmp_path / "job.yaml")])
    sent = generate(kafka.address, "wheel-in", Constant(200.0), 1.0, Records(10, 0.0)).sent
    command = ("run", "job.yaml", "--master", "local[16]", "--kafka", kafka.address)
    done = run(
        program,
        *command,
        *("--for", "15s", "--state", tmp_path / "state", "-o", "json"),
        cwd=tmp_path,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)
    assert (job["job"], job["health"]) == ("default/from-a-wheel", "running")
    assert (job["run"]["arrived"], job["run"]["written"]) == (sent, sent)


@pytest.mark.slow
def test_without_a_jdk_the_build_stops_with_one_sentence(tmp_path: Path) -> None:
    checkout = clean_checkout(tmp_path / "checkout")
    finder = checkout / "src/trilithon/engines/spark/jdk.py"
    searched = "candidates if candidates is not None else _candidates()"
    assert searched in finder.read_text()
    finder.write_text(finder.read_text().replace(searched, "()"))
    done = build(checkout, tmp_path / "dist")
    assert done.returncode != 0
    output = done.stdout + done.stderr
    assert "No wheel without the probe" in output
    assert "No JDK 17 or 21 was found" in output
    assert "Traceback" not in output
    assert not list((tmp_path / "dist").glob("*.whl"))
