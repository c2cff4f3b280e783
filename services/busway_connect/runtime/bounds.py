"""How much a worker takes on by its REST API, each bound with its reason.

What lives here: the numbers, and refusing what is above them. What does not: the size of one body (`rest.bodies`), of expressions
(`patterns`), the number of transforms (`transforms.chain`).
"""

from collections.abc import Collection, Mapping
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
"""Of one request: each is a record to be stored, and all others who change something wait meanwhile."""
OFFSETS_HELD_MAX: Final = 20_000
"""Of all sources together, where a person adds to them: the worker holds them in memory."""


def size_of(config: Mapping[str, str]) -> int:
    """Characters of names and values."""
    return sum(len(name) + len(text) for name, text in config.items())


def require_room(name: str, config: Mapping[str, str], others: Collection[int]) -> None:
    """See that a connector may have these settings.

    Args:
        others: the size of every other connector's settings.

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
    if size + sum(others) > ALL_CONFIGS_CHARS_MAX:
        raise Refused(
            409,
            f"The settings of all connectors together would have more than {ALL_CONFIGS_CHARS_MAX} characters; delete one, or use"
            " another group.id",
        )


def require_few_offsets(added: int, held: int = 0) -> None:
    """See that a request may change so many offsets, and the worker hold them beside those that it has.

    Raises:
        Refused: 413, 409.
    """
    if added > OFFSETS_MAX:
        raise Refused(413, f"The request changes {added} offsets, {OFFSETS_MAX} are the most")
    if held + added > OFFSETS_HELD_MAX:
        raise Refused(409, f"There would be more than {OFFSETS_HELD_MAX} offsets; reset those of a connector")
