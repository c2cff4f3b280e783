"""What the `busway` command needs of the registry, in one place.

What lives here: names. The command imports this module only when a registry is asked for.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from busway.net.listening import CannotListen
from busway_registry.config import BadSetting, RegistryConfig
from busway_registry.domain.compatibility.levels import parse_level
from busway_registry.domain.errors import RegistryError
from busway_registry.server import RegistryServer

__all__ = ["CANNOT_START", "RegistryConfig", "RegistryServer", "parse_level", "run"]

CANNOT_START = (BadSetting, RegistryError, CannotListen, OSError)
"""What keeps a registry from starting; the text of each names the thing and the remedy."""


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end."""
    asyncio.run(main)
