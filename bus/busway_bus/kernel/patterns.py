"""Regular expressions of clients, in RE2's syntax as in Kafka (KIP-848, KIP-1152).

Here: bounds of length and memory, matching whole texts in linear time.
Not here: the APIs that use it.
"""

from busway_bus.kernel.limits import PATTERN_CHARS_MAX, PATTERN_MEMORY_BYTES_MAX

try:
    import re2
except ImportError:  # there are no wheels for every platform
    re2 = None


class BadPattern(ValueError):
    """An invalid or unsupported pattern; the text says why."""


class Pattern:
    """A compiled pattern.

    BadPattern: too long, too large, or no RE2 syntax; or google-re2 is not installed.
    """

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARS_MAX:
            raise BadPattern(f"the pattern has {len(text)} characters, at most {PATTERN_CHARS_MAX} are read")
        if re2 is None:
            raise BadPattern("patterns need the package google-re2: pip install 'busway[patterns]'")
        options = re2.Options()
        options.log_errors = False
        options.max_mem = PATTERN_MEMORY_BYTES_MAX
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as problem:
            reason = problem.args[0] if problem.args else problem
            raise BadPattern(
                f"the pattern cannot be read: {reason.decode() if isinstance(reason, bytes) else reason}"
            ) from None

    def matches(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None
