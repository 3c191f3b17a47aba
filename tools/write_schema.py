"""Writes the JSON Schema of a job file from the models."""

from pathlib import Path

from trilithon.spec import schema

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    (ROOT / "src" / "trilithon" / "spec" / schema.FILE).write_text(
        schema.render(), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
