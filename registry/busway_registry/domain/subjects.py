"""Subject names and version numbers in paths.

Here: their validity.
Not here: their existence (`service`).
"""

from typing import Final

from busway_registry.domain.errors import invalid_subject, invalid_version

LATEST: Final = -1
MAX_VERSION: Final = 2**31 - 1
MAX_ID: Final = 2**31 - 1
"""Records carry ids in four bytes."""
_RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})
_MOST_BYTES: Final = 1024
"""In UTF-8; limited by PostgreSQL's index."""


def check_subject(subject: str) -> str:
    """Return the subject without the prefix of the default context.

    Raises:
        RegistryError: 42208, empty, too long, reserved, with control characters, or in another context.
    """
    subject = subject.removeprefix(":.:")
    if not subject.strip():
        raise invalid_subject(subject, "it is empty")
    if len(subject.encode(errors="replace")) > _MOST_BYTES:
        raise invalid_subject(subject[:40] + "…", f"it is longer than {_MOST_BYTES} bytes")
    if subject in _RESERVED:
        raise invalid_subject(subject, "the name is reserved")
    if any(character < " " or character == "\x7f" for character in subject):
        raise invalid_subject(subject, "it holds control characters")
    if subject.startswith(":."):
        raise invalid_subject(subject, "contexts other than the default one are not served")
    return subject


def parse_version(text: str) -> int:
    """Return the version number, or `LATEST` for `latest` and `-1`; raises 42202, another text."""
    if text.lower() == "latest" or text == "-1":
        return LATEST
    number = parse_number(text)
    if number is None or number < 1:
        raise invalid_version(text)
    return number


def parse_number(text: str) -> int | None:
    """Parse 0 to 2^31-1 in ASCII digits; None for other texts."""
    digits = text.lstrip("0") or text[-1:]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(MAX_VERSION)) or int(digits) > MAX_VERSION:
        return None
    return int(digits)
