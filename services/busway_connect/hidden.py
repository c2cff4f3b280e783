"""What messages may say of a setting's value: a password in it is nobody's business.

What lives here: hiding it. What does not: where messages are made.
"""

import re
from typing import Final

HIDDEN: Final = "[hidden]"
"""Kafka's word in the place of a password."""
_SECRET: Final = re.compile(r"password|secret|jaas|token|user\.info|salt", re.IGNORECASE)
_PASSWORD_BEGINS: Final = re.compile(r"://[^/:@]*:")
_PASSWORD_PARAMETER: Final = re.compile(r"([?&;](?:ssl)?password=)[^&;]*", re.IGNORECASE)


def shown(name: str, text: str) -> str:
    """A setting's value as messages may have it."""
    if _SECRET.search(name):
        return HIDDEN
    # By its parts between @, as one expression for all of it takes hours for a megabyte of "://:", in which nothing else runs.
    *before, last = text.split("@")
    hidden = "@".join([*(_without_password(part) for part in before), last])
    return _PASSWORD_PARAMETER.sub(rf"\1{HIDDEN}", hidden)


def _without_password(part: str) -> str:
    found = _PASSWORD_BEGINS.search(part)
    return part if found is None else part[: found.end()] + HIDDEN
