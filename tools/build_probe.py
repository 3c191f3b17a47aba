"""Builds the probe's jar into the package, where the wheel and the engine find it."""

from pathlib import Path

from trilithon.engines.spark import probe

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    probe.build(ROOT / "probe")


if __name__ == "__main__":
    main()
