"""Imports of the `busway` command.

Here: names; only commands that start a registry import this module.
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
"""Errors that prevent a start; each text has cause and remedy."""


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)
