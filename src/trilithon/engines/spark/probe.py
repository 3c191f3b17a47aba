"""Builds the probe's jar from its sources and runs the probe's own tests.

The probe is the small Java part that runs inside Spark's executors. A wheel contains its jar; in a
checkout `javac` builds it against PySpark's own jars. Standard library only: set-up runs it.
"""

import hashlib
import importlib.util
import os
import subprocess
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from trilithon.engines.spark.jdk import MISSING, find_jdk
from trilithon.errors import ProbeNotBuilt

JAR = Path(__file__).with_name("trilithon-probe.jar")
# The sources of a checkout; a package has none.
SOURCES = Path(__file__).resolve().parents[4] / "probe"
_DIGEST = "Trilithon-Sources"
# A fixed time stamp, so that the same classes make the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LINT = "-Xlint:all,-processing,-path,-classfile,-serial"
_OPENS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


def build(sources: Path, jar: Path = JAR) -> Path:
    """Compiles the probe and replaces the jar."""
    with tempfile.TemporaryDirectory() as folder:
        classes = Path(folder)
        _compile(sources / "src", classes, spark_jars())
        _pack(classes, jar, digest(sources))
    return jar


def digest(sources: Path) -> str:
    """Tells other sources of the probe."""
    total = hashlib.sha256()
    for path in sorted((sources / "src").rglob("*.java")):
        total.update(f"{path.relative_to(sources)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()[:32]


def is_outdated(jar: Path = JAR, sources: Path = SOURCES) -> bool:
    """Whether a checkout has other sources than those that the jar was built of."""
    if not (sources / "src").is_dir():
        return False
    try:
        with zipfile.ZipFile(jar) as archive:
            manifest = archive.read("META-INF/MANIFEST.MF").decode()
    except (zipfile.BadZipFile, KeyError):
        return True
    return f"{_DIGEST}: {digest(sources)}\r\n" not in manifest


def run_tests(sources: Path, jar: Path = JAR) -> str:
    """Compiles and runs the probe's own tests; returns their output."""
    with tempfile.TemporaryDirectory() as folder:
        compile_tests(sources, Path(folder), jar)
        class_path = os.pathsep.join([str(jar), folder, spark_jars()])
        return _run("java", *_OPENS, "-ea", "-cp", class_path, "io.trilithon.probe.AllTests")


def compile_tests(sources: Path, target: Path, jar: Path = JAR) -> None:
    """Compiles the probe's tests, and the loads that benchmarks put on it, to a folder."""
    _compile(sources / "test", target, str(jar), spark_jars())


def spark_jars() -> str:
    """The class path of PySpark's own jars."""
    if (home := find_pyspark()) is None:
        raise ProbeNotBuilt("PySpark is not installed: the probe is compiled against its jars.")
    return str(home / "jars" / "*")


def find_pyspark() -> Path | None:
    """The folder of PySpark: as this process imports it, else as it is installed beside the
    interpreter. A build that pip isolates cannot import it, and would otherwise fetch 400 MB.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        if (Path(folder) / "pyspark" / "jars").is_dir():
            return Path(folder) / "pyspark"
    return None


def _compile(sources: Path, target: Path, *class_path: str) -> None:
    files = sorted(str(path) for path in sources.rglob("*.java"))
    options = ("--release", "17", "-encoding", "UTF-8", "-g", "-Werror", _LINT, "-proc:none")
    _run("javac", *options, "-cp", os.pathsep.join(class_path), "-d", str(target), *files)


def _run(tool: str, *arguments: str) -> str:
    if (jdk := find_jdk()) is None:
        raise ProbeNotBuilt(MISSING)
    process = subprocess.run(  # noqa: S603 - a JDK's tool
        [jdk / "bin" / tool, *arguments], capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        output = f"{process.stdout}{process.stderr}"
        raise ProbeNotBuilt(f"{tool} failed with exit code {process.returncode}:\n{output}")
    return process.stdout


def _pack(classes: Path, jar: Path, sources_digest: str) -> None:
    entries = {
        path.relative_to(classes).as_posix(): path.read_bytes() for path in classes.rglob("*.class")
    }
    manifest = f"Manifest-Version: 1.0\r\n{_DIGEST}: {sources_digest}\r\n\r\n"
    fresh = jar.with_suffix(".new")
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in [
            ("META-INF/MANIFEST.MF", manifest.encode()),
            *sorted(entries.items()),
        ]:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    fresh.replace(jar)
