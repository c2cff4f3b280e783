"""What a registry says of a schema that it refuses, in words.

What lives here: the descriptions in Confluent's messages, remedies first; pure. What does not: asking the registry (`registry`).
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
"""In our registry's descriptions the remedy comes behind this; other registries name none."""


def breaches(messages: Sequence[str]) -> list[str]:
    """Read the descriptions out of a registry's messages, each with its remedy first; the messages themselves where there are none."""
    text = ", ".join(messages)
    found = [_remedy_first(one) for one in _DESCRIPTION.findall(text)] + _MORE.findall(text)
    return found or list(messages)


def refusal(text: str) -> str:
    """Shorten the message with which a registry refuses an incompatible schema; another message stays as it is."""
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
