"""A registry's refusals as readable text.

Not here: requests (`registry`).
"""

import re
from collections.abc import Sequence
from typing import Final

_DESCRIPTION: Final = re.compile(r"description:'(.*?)'(?:, additionalInfo:|\})")
_SUBJECT: Final = re.compile(r'for subject "(.*?)", details')
_VERSION: Final = re.compile(r"oldSchemaVersion: ?(\d+)")
_LEVEL: Final = re.compile(r"compatibility: ?'(\w+)'")
_MORE: Final = re.compile(r"\{more:'(.*?)'\}")
_WRITES: Final = " writes: "


def breaches(messages: Sequence[str]) -> list[str]:
    """Extract the descriptions of a registry's messages, remedies first. Without any return the messages."""
    text = ", ".join(messages)
    descriptions = [_remedy_first(description) for description in _DESCRIPTION.findall(text)] + _MORE.findall(text)
    return descriptions or list(messages)


def refusal(text: str) -> str:
    subject = _SUBJECT.search(text)
    if subject is None or _DESCRIPTION.search(text) is None:
        return text
    version, level = _VERSION.search(text), _LEVEL.search(text)
    against = f" with version {version[1]}" if version else ""
    by = f" by {level[1]}" if level else ""
    return f"{'; '.join(breaches([text]))}; the schema is not compatible{against} of {subject[1]}{by}"


def _remedy_first(description: str) -> str:
    where, writes, remedy = description.partition(_WRITES)
    return f"{remedy} ({where} writes)" if writes else description
