"""Owns the command `init`: it writes an example job."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from trilithon.cli.output import Format, Output, answer, message_console
from trilithon.errors import FileExists, FileUnwritable


def init_command(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("job.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Write an example job: YAML, or Python if the name ends in .py."""
    template = "job.py.txt" if path.suffix == ".py" else "job.yaml"
    content = (resources.files("trilithon.cli") / "templates" / template).read_text(
        encoding="utf-8"
    )
    if path.exists() and not force:
        raise FileExists(f"{path} exists.", "Choose another name, or overwrite it with --force.")
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise FileUnwritable(
            f"{path} cannot be written: {error.strerror}.", "Choose another place."
        ) from error
    answer(output, {"written": str(path)}, lambda console: console.print(str(path), soft_wrap=True))
    message_console().print(
        Text(f"Next: trilithon validate {path}, then trilithon plan {path}", "dim")
    )
