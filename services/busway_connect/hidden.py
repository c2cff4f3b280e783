"""What messages may say of a setting's value: a password in it is nobody's business.

What lives here: hiding it. What does not: where messages are made.
"""

import re
from typing import Final

HIDDEN: Final = "[hidden]"
"""Kafka's word in the place of a password."""
_SECRET: Final = re.compile(r"password|secret|jaas|token|user\.info|salt", re.IGNORECASE)
_PASSWORD_IN_URL: Final = re.compile(r"(://[^/:@]*:)[^@]*(?=@)|([?&;](?:ssl)?password=)[^&;]*", re.IGNORECASE)


def shown(name: str, text: str) -> str:
    """A setting's value as messages may have it."""
    return HIDDEN if _SECRET.search(name) else _PASSWORD_IN_URL.sub(rf"\1\2{HIDDEN}", text)
