"""The tree of errors is whole: what is drawn, what is documented and what there is are the same."""

import importlib
import pkgutil
from pathlib import Path

import pytest

import trilithon
from tools import reference
from trilithon import errors
from trilithon.errors import EXIT_CODES, DoesNotFit, Refused, TrilithonError, error_classes

ROOT = Path(__file__).resolve().parent.parent


def _draw(kind: type[TrilithonError], rails: str = "", children: str = "") -> list[str]:
    """A class and those below it, one line each, as in the docstring of `errors`."""
    line = f"{rails}{kind.__name__}"
    lines = [f"    {line:<30} {kind.code:<23} {kind.exit_code:>4} {kind.http_status:>5}"]
    below = kind.__subclasses__()
    for child in below:
        last = child is below[-1]
        lines += _draw(
            child, children + ("└── " if last else "├── "), children + ("    " if last else "│   ")
        )
    return lines


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    """If this fails, what is expected is the text to write there."""
    title = f"    {'class':<30} {'code':<23} {'exit':>4} {'HTTP':>5}"
    assert "\n".join([title, *_draw(TrilithonError)]) in (errors.__doc__ or "")


def test_every_error_of_the_program_is_in_the_one_tree() -> None:
    for module in pkgutil.walk_packages(trilithon.__path__, "trilithon."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert {kind.__module__ for kind in error_classes()} == {"trilithon.errors"}


def test_every_code_is_there_once_and_documented_with_its_exit_code_and_status() -> None:
    codes = [kind.code for kind in error_classes()]
    assert len(codes) == len(set(codes))
    page = (ROOT / "docs/reference/problems.md").read_text(encoding="utf-8")
    for kind in error_classes():
        assert kind.exit_code in EXIT_CODES
        assert f"| `{kind.code}` | {kind.exit_code} | {kind.http_status} | " in page
        assert kind.__doc__
    assert page == reference.problems()


@pytest.mark.parametrize(
    ("code", "kind"), [("DOES_NOT_FIT", DoesNotFit), ("NOBODY_KNOWS", Refused)]
)
def test_a_refusal_has_the_exit_code_and_the_status_of_its_code(
    code: str, kind: type[TrilithonError]
) -> None:
    error = Refused(code, "Too large.")
    assert (error.code, error.exit_code) == (code, kind.exit_code)
    assert error.http_status == kind.http_status
    assert str(error) == f"{code}: Too large."
