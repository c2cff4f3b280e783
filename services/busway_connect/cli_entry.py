"""Imports of the `busway` command.

Here: names; only commands that start a worker import this module.
"""

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from busway import BuswayError
from busway.security.properties import parsed
from busway_connect.config import BadSetting, WorkerConfig
from busway_connect.runtime.storage import StorageUnfit
from busway_connect.server import ConnectServer

__all__ = ["CANNOT_START", "ConnectServer", "WorkerConfig", "read_properties", "run"]

CANNOT_START = (BadSetting, StorageUnfit, BuswayError, OSError)
"""Errors that prevent a start; each text has cause and remedy."""


def read_properties(path: Path) -> dict[str, str]:
    """Read a Java properties file.

    Raises:
        BadSetting: a line without `=` or `:`; the text does not show it, as it may be a secret.
    """
    text, continued = path.read_text(encoding="utf-8"), False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not continued and (not stripped or stripped[0] in "#!"):
            continue
        if not continued and not re.search(r"[=:]", stripped):
            raise BadSetting(f"{path}:{number}: the line is no name=value")
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
    return parsed(text)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)
