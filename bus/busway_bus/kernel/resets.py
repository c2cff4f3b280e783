"""The start of a share group in a new partition: share.auto.offset.reset.

Here: parsing the setting.
Not here: looking up the offset (partition leader).
"""

import re
from enum import Enum, auto
from typing import Final, NamedTuple


class Begin(Enum):
    LATEST = auto()
    EARLIEST = auto()
    BY_DURATION = auto()


class Reset(NamedTuple):
    """Where to begin; for BY_DURATION how many ms ago."""

    begin: Begin
    duration_ms: int = 0


_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE
)


def parse_reset(text: str) -> Reset:
    word, colon, duration = text.partition(":")
    kind = word.strip().upper()
    if not colon and kind in {"LATEST", "EARLIEST"}:
        return Reset(Begin[kind])
    if kind == "BY_DURATION" and (match := _DURATION.fullmatch(duration)) and any(match.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
        fraction_ms = int((match[5] or "").ljust(3, "0")[:3])
        return Reset(Begin.BY_DURATION, (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms)
    raise ValueError(f"{text!r} is none of latest, earliest and by_duration:<ISO 8601 duration, as PT1H>")
