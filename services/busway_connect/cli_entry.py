"""Imports of the `busway` command.

Here: names; only commands that start a worker import this module.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from busway import BuswayError
from busway_connect.config import BadSetting, WorkerConfig
from busway_connect.runtime.storage import StorageUnfit
from busway_connect.server import ConnectServer

__all__ = ["CANNOT_START", "ConnectServer", "WorkerConfig", "read_properties", "run"]

CANNOT_START = (BadSetting, StorageUnfit, BuswayError, OSError)
"""Errors that prevent a start; each text has cause and remedy."""


def read_properties(path: Path) -> dict[str, str]:
    """Read a properties file: `name=value` lines, `#` for comments; raises `BadSetting` for others."""
    properties = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise BadSetting(f"{path}:{number}: {text[:60]!r} is no name=value")
        properties[name.strip()] = value.strip()
    return properties


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)
