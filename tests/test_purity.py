"""What decides is pure: besides the imports that import-linter forbids, no door left open."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "trilithon"
FILES = sorted(
    path for layer in ("model", "measures", "policies") for path in (SOURCE / layer).rglob("*.py")
)
POLICIES = {"dhalion", "ds2", "henge", "latency", "threshold"}
DOORS = {"random", "open", "print", "exec", "eval", "__import__", "breakpoint"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_randomness_and_no_files_by_way_of_numpy_or_builtins(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"np", "numpy"}:
            assert node.attr not in {"random", "fromfile", "tofile", "load", "save", "memmap"}
        if isinstance(node, ast.Name):
            assert node.id not in DOORS


SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|PRAGMA)\b")


def test_only_the_journal_and_the_store_of_tokens_speak_sql() -> None:
    speaks = {
        path.relative_to(SOURCE).parts[:2]
        for path in SOURCE.rglob("*.py")
        if SQL.search(path.read_text(encoding="utf-8"))
    }
    assert speaks == {("control", "journal"), ("service", "access")}


@pytest.mark.parametrize("package", ["service", "control", "contract", "scenarios"])
def test_what_serves_every_policy_imports_none_by_name(package: str) -> None:
    for path in (SOURCE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                parts = node.module.split(".")
                assert parts[:2] != ["trilithon", "policies"] or parts[2] not in POLICIES
