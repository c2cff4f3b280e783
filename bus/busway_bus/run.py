"""Runs a node as a process: properties file, event loop, end.

Here: the common part of brokers and controllers.
Not here: signals (`busway.net.signals`), output (`busway.cli`, `__main__`).
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from busway.extras import MissingExtra
from busway.net import garbage, lookups
from busway.net.signals import until_signal
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigError
from busway_bus.log.meta_properties import WrongDirectory
from busway_bus.log.os_files import DirectoryInUse
from busway_bus.log.partition_log import CorruptLog
from busway_bus.node import Node
from busway_bus.server.listener import CannotListen
from busway_bus.server.memory import keep_freed_memory

if TYPE_CHECKING:
    from busway_bus.controller_node import ControllerNode

CANNOT_START: Final = (ConfigError, DirectoryInUse, WrongDirectory, CorruptLog, CannotListen, MissingExtra, OSError)
"""Errors of a start; their texts name the cause and the remedy."""


class DiskFailed(OSError):
    """The node stopped as its writes could not be made durable."""


def read_properties(path: str) -> dict[str, str]:
    r"""Read a `server.properties` file.

    Lines are `name=value` or `name: value`; `#` and `!` begin comments; `\` continues a line.

    Raises:
        ConfigError: with the line, if it is neither or repeats a name.
        OSError: the file cannot be read.
    """
    properties: dict[str, str] = {}
    pending = ""
    for number, raw in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        line = pending + raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        at = min((line.index(mark) for mark in "=:" if mark in line), default=-1)
        if at < 1:
            raise ConfigError(line, f"line {number} of {path} is not name=value")
        name = line[:at].strip()
        if name in properties:
            raise ConfigError(name, f"is given twice in {path}; the second time on line {number}")
        properties[name] = line[at + 1 :].strip()
    if pending:
        raise ConfigError(pending, f"the last line of {path} ends with a backslash and continues nowhere")
    return properties


async def serve(config: BrokerConfig, started: "Callable[[Node | ControllerNode], Any]") -> None:
    """Run a node until a signal; call `started` once it serves.

    Raises:
        DiskFailed: it stopped by itself.
            One of `CANNOT_START`.
    """
    lookups.share(asyncio.get_running_loop())
    node = _node(config)
    await node.start()
    garbage.settle(garbage.BROKER)
    stopped = until_signal(node.failed)  # before `started`: its reader may stop the process at once
    try:
        started(node)
        await stopped
    finally:
        stopped.cancel()
        await node.stop()
    if node.failed.is_set():
        raise DiskFailed(f"the disk under {config.data_dir} failed; see the log above")


def _node(config: BrokerConfig) -> "Node | ControllerNode":
    if not config.is_controller_alone:
        return Node(config)
    from busway_bus.controller_node import ControllerNode  # keeps the start of a broker short

    return ControllerNode(config)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end with the broker's allocator, on uvloop if installed."""
    keep_freed_memory()
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main)
