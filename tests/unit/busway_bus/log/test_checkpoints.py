"""The small files beside the logs, in Kafka's formats."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_bus.log import checkpoints

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=20)


@given(st.dictionaries(st.tuples(NAMES, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)))
def test_an_offset_checkpoint_reads_as_written(offsets: dict[tuple[str, int], int]) -> None:
    """Version 0, the count, a line for each partition."""
    text = checkpoints.offsets_text(offsets)
    assert text.splitlines()[:2] == ["0", str(len(offsets))]
    assert checkpoints.offsets_from_text(text) == offsets


@pytest.mark.parametrize("line", ["t 0", "t x 5", "t 0 -5", "", "t 0 5 "])
def test_invalid_lines_are_skipped(line: str) -> None:
    """Without a recovery point a start reads more."""
    assert checkpoints.offsets_from_text(f"0\n2\n{line}\nt 1 7\n") == {("t", 1): 7}


@given(st.dictionaries(st.tuples(NAMES, st.integers(0, 2**31 - 1)), st.uuids()))
def test_owners_of_new_partitions_read_as_written(owners: dict[tuple[str, int], UUID]) -> None:
    """A damaged line proves nothing; the others do."""
    text = checkpoints.owners_text(owners)
    assert checkpoints.owners_from_text(text) == owners
    assert checkpoints.owners_from_text(f"{text}t 0 AAAA\nt 0\n") == owners


@given(st.uuids())
def test_ids_have_kafkas_form(value: UUID) -> None:
    """URL-safe base64 without padding, 22 characters."""
    text = checkpoints.uuid_text(value)
    assert len(text) == 22
    assert checkpoints.uuid_from_text(text) == value


def test_properties_skip_comments() -> None:
    """`#` and `!`; blanks around name and value are not part of them."""
    assert checkpoints.properties_from_text("#x\n! y\n\nversion = 1\na=b=c\n") == {"version": "1", "a": "b=c"}
    assert checkpoints.properties_text({"version": "1", "a": "b"}) == "version=1\na=b\n"
