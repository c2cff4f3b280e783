"""Regular expressions from the REST API, matched in bounded time.

Here: compiling and matching.

Python's `re` holds the interpreter lock during a match, and `(a+)+$` would block the worker practically for ever;
`regex` has the same syntax, releases the lock, and has a timeout.
"""

from typing import Final

import regex

PATTERN_CHARS_MAX: Final = 1024
"""Limit of an expression; compiling takes time, too."""
LIST_CHARS_MAX: Final = 16 * 1024
"""Limit of a comma-separated list: some hundred names."""
MATCH_TIMEOUT_S: Final = 0.02
"""Limit for a name of at most a few hundred characters; sane expressions take microseconds."""
_CACHED_NAMES: Final = 1000


class BadPattern(ValueError):
    """Not a regular expression, or too large."""


class TooLong(ValueError):
    """A match took too long; the text has the expression and a remedy."""


class Pattern:
    """A compiled expression with cached results; raises `BadPattern`."""

    def __init__(self, text: str, *, ignore_case: bool = False) -> None:
        if len(text) > PATTERN_CHARS_MAX:
            raise BadPattern(f"the expression has {len(text)} characters, {PATTERN_CHARS_MAX} are the most")
        self.text = text
        try:
            self._compiled = regex.compile(text, regex.IGNORECASE if ignore_case else 0)
        except (regex.error, RecursionError, OverflowError) as problem:
            raise BadPattern(f"Invalid regex: {problem}") from None
        self._known: dict[str, regex.Match[str] | TooLong | None] = {}

    def match(self, name: str) -> regex.Match[str] | None:
        """Match the whole name; raises `TooLong` beyond the limit, which is cached as well."""
        if name not in self._known:
            if len(self._known) >= _CACHED_NAMES:
                self._known.clear()
            try:
                self._known[name] = self._compiled.fullmatch(name, concurrent=True, timeout=MATCH_TIMEOUT_S)
            except TimeoutError:
                self._known[name] = TooLong(
                    f"the expression {self.text[:80]!r} takes longer than {MATCH_TIMEOUT_S} s for {name[:80]!r}; write it without a repeated"
                    " part inside another"
                )
        result = self._known[name]
        if isinstance(result, TooLong):
            raise result
        return result

    def fullmatch(self, name: str) -> bool:
        """Return whether the whole name matches; raises `TooLong`."""
        return self.match(name) is not None
