"""How much a worker takes on by its REST API, each bound with its reason.

What lives here: the numbers, and refusing what is above them. What does not: the size of one body (`rest.bodies`), of expressions
(`patterns`), the number of transforms (`transforms.chain`).
"""

from collections.abc import Mapping
from typing import Final

from busway_connect.runtime.refusals import Refused

SETTINGS_MAX: Final = 1000
"""Of a connector: the largest that are known have a few hundred, with their transforms."""
CONFIG_CHARS_MAX: Final = 1024 * 1024
"""Of the settings of a connector, names and values, also where they come in several requests (KIP-477)."""
CONNECTORS_MAX: Final = 500
"""Of a worker: each has a task, connections to brokers, and memory for what is under way."""
ALL_CONFIGS_CHARS_MAX: Final = 16 * 1024 * 1024
"""Of the settings of all connectors together, which the worker holds and `GET /connectors?expand=info` answers with."""
OFFSETS_MAX: Final = 1000
"""Of one connector by the REST API: each is a record to be stored, and all others who change something wait meanwhile."""


def size_of(config: Mapping[str, str]) -> int:
    """Characters of names and values."""
    return sum(len(name) + len(text) for name, text in config.items())


def require_room(name: str, config: Mapping[str, str], others: Mapping[str, Mapping[str, str]]) -> None:
    """See that a connector may have these settings.

    Args:
        others: the settings of every other connector, by its name.

    Raises:
        Refused: 413 these are too many or too large; 409 the worker has as much as it takes.
    """
    if len(config) > SETTINGS_MAX:
        raise Refused(413, f"Connector {name} would have {len(config)} settings, {SETTINGS_MAX} are the most")
    size = size_of(config)
    if size > CONFIG_CHARS_MAX:
        raise Refused(
            413, f"The settings of connector {name} would have {size} characters, {CONFIG_CHARS_MAX} are the most"
        )
    if len(others) >= CONNECTORS_MAX:
        raise Refused(
            409,
            f"There are {len(others)} connectors, which is the most for a worker; delete one, or use another group.id",
        )
    if size + sum(size_of(one) for one in others.values()) > ALL_CONFIGS_CHARS_MAX:
        raise Refused(
            409,
            f"The settings of all connectors together would have more than {ALL_CONFIGS_CHARS_MAX} characters; delete one, or use"
            " another group.id",
        )
