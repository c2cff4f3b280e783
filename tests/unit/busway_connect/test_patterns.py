"""Regular expressions from the REST API: whole names, bounded in size and time."""

import pytest

from busway_connect.patterns import PATTERN_CHARS_MAX, BadPattern, Pattern, TooLong


def test_a_whole_name_is_matched() -> None:
    """No part of it; letters' case counts unless it is ignored."""
    assert Pattern("a.c").fullmatch("abc")
    assert not Pattern("a.c").fullmatch("abcd")
    assert not Pattern("a.c").fullmatch("ABC")
    assert Pattern("a.c", ignore_case=True).fullmatch("ABC")


@pytest.mark.parametrize("text", ["(", "a{2,1}", "x" * (PATTERN_CHARS_MAX + 1)])
def test_what_cannot_be_compiled_is_refused(text: str) -> None:
    """With the reason."""
    with pytest.raises(BadPattern, match=r"Invalid regex: |characters"):
        Pattern(text)


def test_a_match_that_takes_too_long_is_refused_with_a_remedy() -> None:
    """Each time, the second one without another attempt."""
    pattern = Pattern(r"(a|aa)+")
    for _ in range(2):
        with pytest.raises(TooLong, match="write it without a repeated"):
            pattern.fullmatch("a" * 200 + "b")
