"""Regular expressions: what they match, what is none, and that none takes long."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_bus.kernel.limits import PATTERN_CHARS_MAX
from busway_bus.kernel.patterns import BadPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "matched", "refused"),
    [
        ("", [""], ["a"]),
        ("a", ["a"], ["", "aa", "b"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("a*b+c?", ["b", "aabb", "abc"], ["a", "acc"]),
        ("(ab)*", ["", "ab", "abab"], ["aba"]),
        ("(?:a|b)c", ["ac", "bc"], ["c"]),
        ("(?P<name>a)(?<other>b)", ["ab"], ["a"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{1,3}?", ["a", "aaa"], ["", "aaaa"]),
        ("a{0}b", ["b"], ["ab"]),
        ("(a{2}|b){2}", ["aab", "bb", "aaaa"], ["ab"]),
        ("a{,2}", ["a{,2}"], ["a"]),
        ("x.y", ["xay", "x.y", "xéy"], ["xy", "x\ny"]),
        ("(?s)x.y", ["x\ny"], []),
        ("[a-c]", ["a", "b", "c"], ["d", "-"]),
        ("[^a-c]", ["d", "-"], ["b", ""]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\d\-x]", ["7", "-", "x"], ["d"]),
        ("[[:alpha:]_]", ["q", "_"], ["7"]),
        (r"\d\w\s\D\W\S", ["1a b-c"], ["aa b-c"]),
        (r"\.\\\x41\x{42}\t", [".\\AB\t"], []),
        (r"\Qa.*\E+", ["a.*", "a.**"], ["ab"]),
        ("^a$", ["a"], ["ba"]),
        ("a^b|a$b", [], ["ab"]),
        (r"\Aa\z", ["a"], []),
        ("(?i)aB[c-d]", ["Abc", "aBD"], ["abx"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("a(?i)b|c", ["aB", "C"], ["AB"]),
        ("(?-i)a", ["a"], ["A"]),
    ],
)
def test_the_whole_text_is_matched(pattern: str, matched: list[str], refused: list[str]) -> None:
    """RE2's syntax, each kind of piece."""
    compiled = Pattern(pattern)
    assert [text for text in matched if not compiled.matches(text)] == []
    assert [text for text in refused if compiled.matches(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[",
        "[a",
        "*",
        "a**",
        "a|*",
        "(?=a)",
        "(?<n",
        r"\1",
        r"\p{L}",
        r"\b",
        "a{2,1}",
        "a{1001}",
        "[z-a]",
        "\\",
        r"\x{}",
        r"\xg1",
        "[[:nope:]]",
        "(" * 60 + ")" * 60,
        "a" * (PATTERN_CHARS_MAX + 1),
        "((a{100}){100}){100}",
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    """Or is too large."""
    with pytest.raises(BadPattern):
        Pattern(pattern)


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda text: f"({text})"),
    ),
    max_leaves=8,
)


@given(pattern=PATTERNS, text=st.text("abc\n", max_size=8))
def test_it_agrees_with_another_engine(pattern: str, text: str) -> None:
    """Python's, where both mean the same."""
    assert Pattern(pattern).matches(text) == (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a+)+$b", "a?" * 100 + "a{100}b"])
def test_no_pattern_explodes(pattern: str) -> None:
    """What takes a backtracking engine for ever takes this one some steps for each character, with stops between them."""
    began = time.thread_time()
    assert not Pattern(pattern).matches("a" * 200)
    assert time.thread_time() - began < 2
    stops = sum(1 for _ in Pattern(pattern).steps("a" * 10_000))
    assert stops > 10
