"""Limits of the REST API, each with its reason.

Here: the numbers, and refusals above them.
Not here: bodies (`rest.bodies`), expressions (`patterns`), transforms (`transforms.chain`).
"""

from collections.abc import Collection, Mapping
from typing import Final

from busway_connect.runtime.refusals import Refused

SETTINGS_MAX: Final = 1000
"""Of a connector; the largest known have a few hundred, with transforms."""
CONFIG_CHARS_MAX: Final = 1024 * 1024
"""Of a connector's settings, also if sent in parts (KIP-477)."""
CONNECTORS_MAX: Final = 500
"""Of a worker, as each has a task, broker connections, and records in flight."""
ALL_CONFIGS_CHARS_MAX: Final = 16 * 1024 * 1024
"""Of all settings, which are in memory and `GET /connectors?expand=info`."""
OFFSETS_MAX: Final = 1000
"""Of a request, as each is stored while other changes wait."""
OFFSETS_HELD_MAX: Final = 20_000
"""Of all sources when users add offsets, as they are in memory."""


def size_of(config: Mapping[str, str]) -> int:
    return sum(len(name) + len(text) for name, text in config.items())


def require_room(name: str, config: Mapping[str, str], others: Collection[int]) -> None:
    """Check a connector's settings against the limits; raises `Refused` 413 too large, 409 the worker is full."""
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
    """Check the number of offsets, in the request and in memory; raises `Refused` 413, 409."""
    if added > OFFSETS_MAX:
        raise Refused(413, f"The request changes {added} offsets, {OFFSETS_MAX} are the most")
    if held + added > OFFSETS_HELD_MAX:
        raise Refused(409, f"There would be more than {OFFSETS_HELD_MAX} offsets; reset those of a connector")
