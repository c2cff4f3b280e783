"""The order of tests for several processes."""

import itertools

import pytest

from tests.support.ordering import slow_first


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_each_process_begins_with_its_share_of_slow_tests(workers: int) -> None:
    """Each test is there once, the parts are equal, and neighbours stay neighbours."""
    tests = [(number, number % 5 == 0) for number in range(101)]
    ordered = slow_first(tests, lambda test: test[1], workers)
    assert sorted(ordered) == tests
    turns = [(before, after) for before, after in itertools.pairwise(ordered) if before[1] < after[1]]
    assert len(turns) == workers - 1
    for kind in (True, False):
        assert [test for test in ordered if test[1] is kind] == [test for test in tests if test[1] is kind]
