"""`python -m busway_registry [PORT [DATABASE]]`: a registry in a process of its own, started by programs.

Here: the minimum for a supervisor.
Not here: the command line (`busway registry`).
"""

import asyncio
import sys
from typing import Any

from busway.net import garbage
from busway.net.listening import CannotListen
from busway.net.signals import until_signal
from busway_registry.config import BadSetting, RegistryConfig
from busway_registry.server import NoStore, RegistryServer


async def serve(config: RegistryConfig) -> None:
    """Serve until SIGINT or SIGTERM; print one line with the address."""
    async with RegistryServer(config) as server:
        garbage.settle()
        stopped = until_signal()  # before the address is printed: a reader may send a signal at once
        print(f"serving {server.url}", flush=True)  # noqa: T201 - its one line of output
        await stopped


def main(arguments: list[str]) -> int:
    """Return 0, or 1 after printing why it could not start."""
    try:
        given: dict[str, Any] = {}
        if arguments:
            given["port"] = int(arguments[0])
        if len(arguments) > 1:
            given["database"] = arguments[1]
        asyncio.run(serve(RegistryConfig(**given)))
    except (ValueError, BadSetting, CannotListen, NoStore) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
