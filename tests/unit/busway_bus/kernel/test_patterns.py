"""Patterns that clients send: what is read, what is refused, and that none takes a broker's time."""

import pytest

from busway_bus.kernel import patterns
from busway_bus.kernel.limits import PATTERN_CHARS_MAX
from busway_bus.kernel.patterns import BadPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("orders-.*", "orders-1", True),
        ("orders", "orders-1", False),
        ("(?i)ORDERS-[0-9]+", "orders-12", True),
        (r"\p{Greek}+", "αβγ", True),
        ("a|b", "ab", False),
        ("", "", True),
    ],
)
def test_the_whole_text_has_to_match(pattern: str, text: str, matches: bool) -> None:
    """By RE2's syntax."""
    assert Pattern(pattern).matches(text) is matches


@pytest.mark.parametrize(
    "pattern", ["(", r"(a)\1", "(?=a)", "a{2000}", "(((a{100}){100}){100})", "a" * (PATTERN_CHARS_MAX + 1)]
)
def test_what_cannot_be_read_in_bounds_is_refused(pattern: str) -> None:
    """Broken, not linear, or too large."""
    with pytest.raises(BadPattern, match="pattern"):
        Pattern(pattern)


def test_no_pattern_goes_back_and_forth() -> None:
    """A backtracking engine would not end here."""
    assert not Pattern("(a*)*(a|aa)+b").matches("a" * 30_000)


def test_without_the_library_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its wheel is not to be had."""
    monkeypatch.setattr(patterns, "re2", None)
    with pytest.raises(BadPattern, match="google-re2"):
        Pattern("a")
