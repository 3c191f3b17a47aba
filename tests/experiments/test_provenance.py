"""What results were made by is told by the chosen numbers and by how the code behaves."""

import pytest

from trilithon.experiments import provenance
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.provenance import fingerprint
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
