"""What is done of a partition when it is not done in order."""

from hypothesis import given
from hypothesis import strategies as st

from busway.app.offset_set import OffsetSet

OFFSETS = st.integers(0, 60)


@given(st.integers(0, 20), st.lists(OFFSETS, max_size=40), st.lists(OFFSETS, max_size=40))
def test_it_is_a_set(below: int, first: list[int], second: list[int]) -> None:
    """Whatever is put in, in whatever order, is in it and nothing else; its text brings it back; two sets join."""
    offsets, other = OffsetSet(below), OffsetSet()
    for offset in first:
        offsets.add(offset)
    for offset in second:
        other.add(offset)
    wanted = {*range(below), *first}
    assert {offset for offset in range(70) if offset in offsets} == wanted
    assert OffsetSet.parse(offsets.below, offsets.text) == offsets
    offsets.update(other)
    assert {offset for offset in range(70) if offset in offsets} == {*wanted, *second}
    assert offsets.below not in offsets


def test_the_text_is_short_and_empty_where_nothing_is_ahead() -> None:
    """The form that the module tells of."""
    offsets = OffsetSet(10)
    offsets.add(13, 15)
    offsets.add(20)
    assert offsets.text == "1;3+2,5+1"
    offsets.add(10, 20)
    assert (offsets.below, offsets.text) == (21, "")


def test_metadata_of_others_adds_nothing() -> None:
    """Text that is not ours, or is damaged, leaves records open rather than lost."""
    for text in ("", "hello", "1;", "1;x+1", "1;0+5", "1;3", "1;3+-1", "2;3+1"):
        assert OffsetSet.parse(7, text) == OffsetSet(7), text


def test_a_copy_grows_by_itself() -> None:
    """What is checked before it is done must not be done by checking."""
    offsets = OffsetSet(1, [(3, 4)])
    copy = offsets.copy()
    copy.add(1)
    assert (offsets.below, copy.below) == (1, 2)
