"""What decides is pure: besides the imports that import-linter forbids, no door left open."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "trilithon"
FILES = sorted(
    path for layer in ("model", "measures", "policies") for path in (SOURCE / layer).rglob("*.py")
)
DOORS = {"random", "open", "print", "exec", "eval", "__import__", "breakpoint"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_randomness_and_no_files_by_way_of_numpy_or_builtins(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"np", "numpy"}:
            assert node.attr not in {"random", "fromfile", "tofile", "load", "save", "memmap"}
        if isinstance(node, ast.Name):
            assert node.id not in DOORS
