"""A class name has one definition, so that a reader who searches for it finds the right class."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Names that still have several definitions. Remove a name here when its class is renamed.
DUPLICATES = frozenset({"Change", "Look", "Outcome", "Result", "Shape"})


def definitions() -> dict[str, list[str]]:
    """Where each class in src/ is defined, by its name."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return places


def test_a_class_name_is_defined_once() -> None:
    several = {name: places for name, places in definitions().items() if len(places) > 1}
    assert {name: places for name, places in several.items() if name not in DUPLICATES} == {}
