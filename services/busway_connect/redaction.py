"""Hiding passwords in messages on settings.

Here: hiding them, and the values behind providers' references.
"""

import re
from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "[hidden]"
_SECRET: Final = re.compile(r"password|secret|jaas|token|user\.info|salt", re.IGNORECASE)
_PASSWORD_BEGINS: Final = re.compile(r"://[^/:@]*:")
_PASSWORD_PARAMETER: Final = re.compile(r"([?&;](?:ssl)?password=)[^&;]*", re.IGNORECASE)


def shown(name: str, text: str) -> str:
    if _SECRET.search(name):
        return HIDDEN
    # Split at @ first: one expression for the whole takes hours for a megabyte of "://:", blocking everything.
    *before, last = text.split("@")
    hidden = "@".join([*(_without_password(part) for part in before), last])
    return _PASSWORD_PARAMETER.sub(rf"\1{HIDDEN}", hidden)


def _without_password(part: str) -> str:
    match = _PASSWORD_BEGINS.search(part)
    return part if match is None else part[: match.end()] + HIDDEN


_WORDS: Final = re.compile(r"\w+")
_WORD_CHARS_MIN: Final = 3
"""Shorter words occur in any text and reveal nothing."""
_TELLING_CHARS_MIN: Final = 5
"""Words this long are also searched inside other words."""


class References:
    """Keeps values of references out of messages."""

    def __init__(self, given: Mapping[str, str], resolved: Mapping[str, str]) -> None:
        changed = {name: text for name, text in resolved.items() if given.get(name) != text}
        self._given = given
        self._whole = {text: given.get(name, HIDDEN) for name, text in changed.items() if len(text) >= _WORD_CHARS_MIN}
        self._pieces: set[str] = set()
        for name, text in changed.items():
            known = {word.lower() for word in _WORDS.findall(given.get(name, ""))}
            words = {word.lower() for word in _WORDS.findall(text)}
            self._pieces |= {
                word for word in words - known if len(word) >= _WORD_CHARS_MIN or word == text.strip().lower()
            }

    def redacted(self, name: str, text: str) -> str:
        """Return a message with references instead of values; only that the setting is invalid, if part of a value
        would remain.
        """
        text = self.hidden(text)
        if not self._shows(text):
            return text
        name = self.hidden(name)
        given = f" {shown(name, self._given[name])}" if name in self._given else ""
        return f"Invalid value{given} for configuration {name}: it cannot be what the reference stands for, which is not shown"

    def hidden(self, text: str) -> str:
        for value, reference in self._whole.items():
            text = text.replace(value, reference)
        return text

    def _shows(self, text: str) -> bool:
        for reference in self._whole.values():
            text = text.replace(reference, "")
        text = text.lower()
        words = set(_WORDS.findall(text))
        return any(piece in words or (len(piece) >= _TELLING_CHARS_MIN and piece in text) for piece in self._pieces)
