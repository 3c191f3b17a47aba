"""What `make demo` runs: the example job, validated and planned. It does not run it yet."""

import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    trilithon = Path(sys.executable).with_name("trilithon")
    with tempfile.TemporaryDirectory() as folder:
        for command in (["init", "job.yaml"], ["validate", "job.yaml"], ["plan", "job.yaml"]):
            print(f"$ trilithon {' '.join(command)}", flush=True)
            subprocess.run([trilithon, *command], cwd=folder, check=True)
            print(flush=True)
    print("This version describes, checks and measures jobs; the engine that runs them comes next.")


if __name__ == "__main__":
    main()
