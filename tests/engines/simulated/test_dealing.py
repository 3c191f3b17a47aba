"""Dealing records in turn: senders that begin together must not stay together."""

import numpy as np
import pytest

from tests.engines.simulated.worlds import line, operator, world_of
from trilithon.engines.simulated.moving import _first_turns, prepared
from trilithon.engines.simulated.world_tables import Ints


def variation(turns: Ints, receivers: int) -> float:
    """c² of the time between two records at a receiver, if all senders are fed in turn."""
    phases = np.sort(turns % receivers)
    gaps = np.append(np.diff(phases), receivers - phases[-1] + phases[0])
    return float(gaps.var() / gaps.mean() ** 2)


@pytest.mark.parametrize("senders", [8, 32, 50])
def test_no_number_of_receivers_has_its_senders_in_step(senders: int) -> None:
    """Independent senders together are nearly a Poisson stream, with c² about 1. With a multiple of
    the index as their beginning, 32 senders had 13 with 146 receivers, and 29 with 219.
    """
    turns = _first_turns(np.arange(senders))
    found = [variation(turns, receivers) for receivers in range(senders + 1, 521)]
    assert 0.5 < np.median(found) < 1.5
    assert max(found) < 4


def test_senders_begin_at_their_turns() -> None:
    world, _ = world_of(line(operator("a", instances=8), operator("b", instances=3)))
    assert set(prepared(world).lanes["turn"]) >= set(_first_turns(np.arange(8)))
