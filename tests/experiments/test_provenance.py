"""What results were made by is told by the chosen numbers and by how the code behaves."""

from pathlib import Path
from types import ModuleType

import pytest

from trilithon.experiments import provenance
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.provenance import code_of, fingerprint
from trilithon.policies.henge.henge_policy import HengePolicy
from trilithon.policies.policy import State, Verdict
from trilithon.policies.scene import Scene
from trilithon.scenarios.chosen import load_chosen


def test_another_chosen_number_or_another_behaviour_is_another_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It once was a digest of the sources: a new comment in any policy discarded hours of runs."""
    chosen = load_chosen()
    monkeypatch.setattr(provenance, "_CHECKED", 1)
    provenance._behaviour.cache_clear()
    try:
        before = fingerprint(PAPER, chosen)
        provenance._behaviour.cache_clear()
        assert fingerprint(PAPER, chosen) == before
        threads = chosen.common.threads.model_copy(update={"cores": 0.5})
        common = chosen.common.model_copy(update={"threads": threads})
        assert fingerprint(PAPER, chosen.model_copy(update={"common": common})) != before
        provenance._behaviour.cache_clear()
        monkeypatch.setattr(HengePolicy, "decide", _decide_nothing)
        assert fingerprint(PAPER, chosen) != before
    finally:
        provenance._behaviour.cache_clear()


def _decide_nothing(_policy: HengePolicy, _scene: Scene, state: State) -> Verdict:
    return Verdict((), state)


def test_the_code_of_a_module_or_package_does_not_change_with_comments_and_docstrings(
    tmp_path: Path,
) -> None:
    module, package = ModuleType("part"), ModuleType("package")
    module.__file__, package.__file__ = str(tmp_path / "part.py"), str(tmp_path / "__init__.py")

    def written(text: str) -> tuple[str, str]:
        (tmp_path / "part.py").write_text(text, encoding="utf-8")
        return code_of(module), code_of(package)

    (tmp_path / "__init__.py").touch()
    first = written('"""Halves."""\n\ndef half(x):\n    """Of it."""\n    return x / 2\n')
    assert written("def half(x):\n    # Of it.\n    return (x / 2)\n") == first
    module_code, package_code = written("def half(x):\n    return x / 3\n")
    assert module_code != first[0]
    assert package_code != first[1]
