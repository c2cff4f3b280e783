"""Regular expressions from the REST API, matched in bounded time.

What lives here: compiling and matching. What does not: what is matched. Python's own `re` holds the interpreter for as long as a match
takes, and `(a+)+$` takes longer than the worker lives, for every connector and every client; `regex` reads the same expressions, lets other
threads run while it matches, and gives up.
"""

from typing import Final

import regex

PATTERN_CHARS_MAX: Final = 1024
"""Of one expression; to compile it is work too."""
LIST_CHARS_MAX: Final = 16 * 1024
"""Of a list of expressions with commas: some hundred names."""
MATCH_TIMEOUT_S: Final = 0.02
"""For one name, of at most a few hundred characters, which takes a sane expression microseconds."""
_CACHED_NAMES: Final = 1000


class BadPattern(ValueError):
    """It is no regular expression, or too large to be one."""


class TooLong(ValueError):
    """A match took longer than it may; says which expression, and the remedy."""


class Pattern:
    """A compiled expression, which remembers what it made of a name.

    Raises:
        BadPattern: it is none.
    """

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
        """How the whole name matches.

        Raises:
            TooLong: it cannot be said in time, now and for this name ever.
        """
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
        """Whether the whole name matches; raises `TooLong`."""
        return self.match(name) is not None
