"""Makes the environment in `.venv` from the lock file and finds a JDK: all that a fresh machine
lacks.

Needs Python 3.11 or newer and nothing else. Packages come from whatever index pip is set up for;
`uv.lock` names versions and hashes, and no registry.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"

sys.path.insert(0, str(ROOT / "src"))


def main() -> None:
    if sys.version_info < (3, 11):
        stop(f"Trilithon needs Python 3.11 or newer; this is {sys.version.split()[0]}.")
    if sys.argv[1:] == ["--browser"]:
        ensure_browser()
        ensure_promtool()
        return
    ensure_jdk()
    ensure_venv()
    uv = ensure_uv()
    install(uv)
    (VENV / ".ready").touch()


def ensure_jdk() -> None:
    from trilithon.engines.spark.jdk import MISSING, find_jdk  # noqa: PLC0415 - after sys.path

    if find_jdk() is None:
        apt_install("openjdk-17-jdk-headless", otherwise=MISSING)
        if find_jdk() is None:
            stop(MISSING)


def ensure_browser() -> None:
    """A Chromium for the tests that look at pages, where it can be installed. Without
    one they are skipped, and say so.
    """
    there = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    if not there and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        apt_install("chromium", otherwise="")


def ensure_promtool() -> None:
    """Prometheus' own checker for the tests of metrics and alert rules, beside Python: only that
    program of Debian's package, which would start a server. Without it its test is skipped.
    """
    beside = VENV / "bin" / "promtool"
    if beside.exists() or shutil.which("promtool") or shutil.which("dpkg-deb") is None:
        return
    say("fetching promtool")
    with tempfile.TemporaryDirectory() as name:
        try:
            if os.geteuid() == 0:
                run("apt-get", "update", "-qq", quiet=True)
            run("apt-get", "download", "-qq", "prometheus", quiet=True, folder=Path(name))
            (package,) = Path(name).glob("*.deb")
            run("dpkg-deb", "-x", package, name, quiet=True)
        except (SystemExit, ValueError, OSError):
            say("promtool cannot be fetched here")
            return
        shutil.copy(Path(name) / "usr" / "bin" / "promtool", beside)


def ensure_venv() -> None:
    if importlib.util.find_spec("ensurepip") is None:
        apt_install(
            "python3-venv",
            otherwise="This Python cannot make environments: install its venv package "
            "(on Debian: apt-get install python3-venv).",
        )
    if not PYTHON.exists():
        say("making .venv")
        run(sys.executable, "-m", "venv", "--clear", VENV)


def ensure_uv() -> Path:
    """The installer in the version and with the hashes of the lock file."""
    uv = VENV / "bin" / "uv"
    locked = next(p for p in lock()["package"] if p["name"] == "uv")
    if uv.exists() and locked["version"] in run(uv, "--version", quiet=True):
        return uv
    say(f"installing uv {locked['version']}")
    hashes = " ".join(f"--hash={wheel['hash']}" for wheel in locked["wheels"])
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirement:
        requirement.write(f"uv=={locked['version']} {hashes}\n")
        requirement.flush()
        run(PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", requirement.name)
    return uv


def install(uv: Path) -> None:
    """The locked packages, checked by their hashes, and this project on top of them."""
    say("installing the locked packages")
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.txt"
        export = ("export", "--frozen", "--quiet", "--no-emit-project", "--no-header")
        run(uv, *export, "--output-file", wanted, quiet=True)
        # Compiled here, once, as pip does: a program that has to compile its libraries takes a
        # second longer to start, and where Python may not write compiled files it does so always.
        where = ("--quiet", "--system-certs", "--compile-bytecode", "--python", PYTHON)
        environment = {**os.environ, **index()}
        run(uv, "pip", "sync", *where, "--require-hashes", wanted, env=environment)
        run(uv, "pip", "install", *where, "--no-deps", "--editable", ROOT, env=environment)


def index() -> dict[str, str]:
    """The index that pip is set up for, in words that uv understands."""
    if "UV_DEFAULT_INDEX" in os.environ:
        return {}
    found = re.search(
        r"index-url='([^']+)'", run(PYTHON, "-m", "pip", "config", "list", quiet=True)
    )
    return {"UV_DEFAULT_INDEX": found.group(1)} if found else {}


def lock() -> dict[str, Any]:
    return tomllib.loads((ROOT / "uv.lock").read_text())


def apt_install(package: str, otherwise: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        stop(otherwise)
    say(f"installing {package}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "-qq", env=environment, quiet=True)
    run("apt-get", "install", "-y", "-qq", package, env=environment, quiet=True)


def run(
    *command: str | Path,
    env: dict[str, str] | None = None,
    quiet: bool = False,
    folder: Path = ROOT,
) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=env,
        text=True,
        check=False,
        stdout=subprocess.PIPE if quiet else sys.stderr,
        stderr=subprocess.STDOUT if quiet else None,
    )
    if done.returncode != 0:
        if quiet:
            print(done.stdout, file=sys.stderr)
        stop(f"Set-up stopped: `{' '.join(map(str, command))}` ended with {done.returncode}.")
    return done.stdout or ""


def say(message: str) -> None:
    print(f"set-up: {message}", file=sys.stderr, flush=True)


def stop(message: str) -> NoReturn:
    sys.exit(message)


if __name__ == "__main__":
    main()
