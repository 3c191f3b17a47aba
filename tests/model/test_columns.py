"""Tables: their columns one by one, and all in one block."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from trilithon.model.columns import Sinks, difference


def sinks(**known: list[float]) -> Sinks:
    return Sinks.of(len(next(iter(known.values()))), **known)


def test_a_block_has_a_row_for_each_column_in_their_order() -> None:
    table = sinks(incarnation=[1.0, 2.0], written=[10.0, 20.0])
    assert table.block.shape == (len(Sinks.names()), 2)
    for name, row in zip(Sinks.names(), table.block, strict=True):
        np.testing.assert_array_equal(row, table.column(name))


def test_a_table_of_a_block_has_the_same_columns_and_cannot_be_changed() -> None:
    table = sinks(incarnation=[1.0, 2.0], written=[10.0, 20.0])
    same = Sinks.of_block(table.block.copy())
    assert same.equals(table)
    with pytest.raises(ValueError, match="read-only"):
        same.written[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        same.block[0, 0] = 1.0


def test_a_block_must_have_every_column() -> None:
    with pytest.raises(ValueError, match="columns, not 2"):
        Sinks.of_block(np.zeros((2, 3)))


def test_a_table_of_a_block_has_no_other_attributes_and_can_be_copied() -> None:
    table = Sinks.of_block(np.zeros((len(Sinks.names()), 3)))
    assert not hasattr(table, "wrote")
    with pytest.raises(AttributeError, match="Sinks has no 'wrote'"):
        _ = table.wrote  # type: ignore[attr-defined]
    for same in (copy.copy(table), pickle.loads(pickle.dumps(table)), replace(table)):  # noqa: S301
        assert same.equals(table)
        assert len(same) == 3


def test_a_part_is_the_rows_side_by_side() -> None:
    table = sinks(incarnation=[1.0, 2.0, 3.0], written=[10.0, 20.0, 30.0])
    assert table.part(slice(1, 3)).written.tolist() == [20.0, 30.0]
    assert len(table.part(slice(1, 1))) == 0


def test_a_trusted_table_is_that_of_the_checked_way() -> None:
    known = {"incarnation": np.array([1.0, 2.0]), "written": np.array([10.0, np.nan])}
    assert Sinks.trusted(2, **known).equals(Sinks.of(2, **known))


def test_growth_is_missing_where_a_counter_fell_and_begins_anew_after_a_restart() -> None:
    before = sinks(incarnation=[1.0, 1.0, 1.0], written=[10.0, 10.0, 10.0])
    after = sinks(incarnation=[1.0, 2.0, 1.0], written=[15.0, 4.0, 9.0])
    grown = difference(before, after)
    np.testing.assert_array_equal(grown.written, [5.0, 4.0, np.nan])
    np.testing.assert_array_equal(grown.incarnation, after.incarnation)
