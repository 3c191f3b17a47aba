"""Runs in processes of their own: each result with its index, and an error as it came."""

import pytest

from trilithon.experiments.worker_pool import each_done


@pytest.mark.parametrize("workers", [1, 2])
def test_each_result_comes_with_its_index_whoever_made_it(workers: int) -> None:
    assert dict(each_done(divmod, [(17, 5), (9, 4), (3, 7)], workers)) == {
        0: (3, 2),
        1: (2, 1),
        2: (0, 3),
    }


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_one_ends_all(workers: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(each_done(divmod, [(1, 0), (9, 4)], workers))
