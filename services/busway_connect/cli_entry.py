"""What the `busway` command needs of a worker, in one place.

What lives here: names. The command imports this module only when a worker is asked for.
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
"""What keeps a worker from starting; the text of each names the thing and the remedy."""


def read_properties(path: Path) -> dict[str, str]:
    """A worker's properties file: `name=value` by line, `#` before a remark.

    Raises:
        BadSetting: a line is neither.
    """
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
    """Run to the end."""
    asyncio.run(main)
