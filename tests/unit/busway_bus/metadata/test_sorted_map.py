"""The map of images against a dict, and what a change of it copies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_bus.metadata.sorted_map import BLOCK, SortedMap

keys = st.integers(0, 400)
changes = st.dictionaries(keys, st.none() | st.integers(), max_size=12)


@pytest.mark.slow
@given(st.dictionaries(keys, st.integers()), st.lists(changes, max_size=40), keys)
def test_it_is_a_dict_in_the_order_of_its_keys(start, steps, since) -> None:
    """After any changes, one by one and many at once; those before stay as they were."""
    mapping, model = SortedMap(start), dict(start)
    for step in steps:
        before, copy = mapping, dict(mapping)
        mapping = mapping.updated(step)
        model = {key: value for key, value in {**model, **step}.items() if value is not None}
        assert dict(before) == copy
        assert mapping == model
        assert list(mapping) == sorted(model)
        assert list(mapping.pairs()) == sorted(model.items())
        assert len(mapping) == len(model)
    assert list(mapping.since(since)) == [key for key in sorted(model) if key >= since]
    for key in range(401):
        assert mapping.get(key) == model.get(key)


@given(st.sets(keys), st.sets(keys))
def test_what_is_gone_is_gone(present, gone) -> None:
    """Removing what is there and what is not."""
    mapping = SortedMap(dict.fromkeys(present, 0))
    for key in gone:
        mapping = mapping.updated({key: None})
    assert set(mapping) == present - gone


def test_a_change_copies_one_block() -> None:
    """The others are the same objects: an image of ten thousand topics costs one change little."""
    before = SortedMap({number: number for number in range(10_000)})
    after = before.updated({5_000: -1})
    shared = {id(block) for block in before._blocks} & {id(block) for block in after._blocks}
    assert len(shared) == len(before._blocks) - 1
    assert max(len(block) for block, _ in before._blocks) <= BLOCK
