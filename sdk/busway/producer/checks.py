"""Checks of a record's types, size and timestamp.

Not here: whether topic and partition exist (`producer`).
"""

from typing import Any, Final

from busway.errors import MessageTooLarge
from busway.producer.accumulator import RECORD_OVERHEAD
from busway.types import Headers

_BYTES: Final = bytes | bytearray | memoryview | None
_TIMESTAMP_LIMIT: Final = 2**63


def size_of(topic: str, value: Any, key: Any, headers: Headers, most: int) -> int:
    """Check the types of a record and return its approximate size in bytes, at most `most`.

    Raise `TypeError` for the wrong type, `MessageTooLarge` above `most`.
    """
    if not (isinstance(value, _BYTES) and isinstance(key, _BYTES)):
        raise TypeError(
            f"key and value of a record are bytes or None, not {type(key).__name__} and {type(value).__name__}"
        )
    size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
    if headers:
        size += _size_of_headers(headers)
    if size > most:
        raise MessageTooLarge(f"a record of {size} bytes for {topic} is larger than max_request_size={most}")
    return size


def _size_of_headers(headers: Headers) -> int:
    size = 0
    try:
        for name, content in headers:
            if not (isinstance(name, str) and isinstance(content, _BYTES)):
                raise TypeError(f"a header is a str and bytes or None, not {name!r:.40} and {content!r:.40}")
            size += len(name) + (len(content) if content else 0) + 8
    except ValueError:
        raise TypeError(f"headers are pairs, such as [('name', b'value')], not {headers!r:.80}") from None
    return size


def checked_timestamp(timestamp_ms: int) -> int:
    """Return the timestamp, in milliseconds since 1970; raise `ValueError` if negative or not below 2**63."""
    if not 0 <= timestamp_ms < _TIMESTAMP_LIMIT:
        raise ValueError(f"timestamp_ms: {timestamp_ms} is no moment in milliseconds since 1970")
    return timestamp_ms
