"""Writes uv.lock: resolves the dependencies, then takes the registry's addresses out.

With the addresses a lock file works only where that registry is reached. Without them it is a list
of versions and hashes, and each machine installs from the index that it is set up for.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "uv.lock"
PLACEHOLDER = "https://index.invalid"


def main() -> None:
    subprocess.run(
        [Path(sys.executable).with_name("uv"), "lock", *sys.argv[1:]], cwd=ROOT, check=True
    )
    LOCK.write_text(without_addresses(LOCK.read_text()))


def without_addresses(text: str) -> str:
    """The same lock with a reserved name for every host and only the file's name of each path."""
    text = re.sub(r'registry = "[^"]+"', f'registry = "{PLACEHOLDER}/simple"', text)
    return re.sub(r'url = "https?://[^"]+/([^/"]+)"', rf'url = "{PLACEHOLDER}/\1"', text)


if __name__ == "__main__":
    main()
