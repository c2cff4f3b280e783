"""Record headers as text, for the outbox's column."""

import base64
import json
from collections.abc import Sequence

from busway.types import Headers


def pack_headers(headers: Headers) -> str:
    """Return a JSON array of [name, value in base64 or null]; `TypeError` for other headers."""
    packed: list[tuple[str, str | None]] = []
    for name, value in headers:
        if not isinstance(name, str) or not isinstance(value, bytes | None):
            raise TypeError(f"a header is a str and bytes or None, not {name!r:.40} and {value!r:.40}")
        packed.append((name, None if value is None else base64.b64encode(value).decode()))
    return json.dumps(packed)


def unpack_headers(text: str) -> Sequence[tuple[str, bytes | None]]:
    return [(name, None if value is None else base64.b64decode(value)) for name, value in json.loads(text)]
