"""`busway up`, `busway broker`, `busway registry`.

Here: options → settings, output at start.
Not here: the servers, which are extras.
"""

import asyncio
import contextlib
import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from busway.cli.logs import LogFormat, LogLevel, log_to_stderr
from busway.cli.nodes import NODES_MAX, check_folder, files_of, prepare, settings_of
from busway.cli.nodes import running as nodes_running
from busway.cli.output import AsJson, CommandFailed, write_json
from busway.cli.processes import end_with_parent
from busway.cli.starting import overrides, serve
from busway.extras import need
from busway.net import garbage
from busway.net.machine import OS
from busway.net.signals import until_signal

HOME: Final = Path(".busway")
"""Default data folder, shared by all three so that each finds the others' data."""
LOG_LEVEL: Final = "warning"
"""Default log level of servers."""
Data = Annotated[Path, typer.Option("--data", help="Folder for all data.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen beyond this machine without authentication: the network is trusted.")
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
Override = Annotated[
    list[str] | None, typer.Option("--override", "-o", help="A broker's setting by Kafka's name, name=value.")
]


def up(
    data: Data = HOME,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port of the broker; 0 takes a free one.")] = 9092,
    registry_port: Annotated[
        int, typer.Option("--registry-port", help="Port of the registry; 0 takes a free one.")
    ] = 8081,
    override: Override = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Serve the broker's metrics here.")
    ] = None,
    insecure: Insecure = False,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", help="Start a cluster of so many brokers, each in a process, on ports from --port on."),
    ] = None,
    log_level: LogLevel = LOG_LEVEL,
    log_format: LogFormat = "text",
    as_json: AsJson = False,
) -> None:
    """Start a broker, or several, and a schema registry; Ctrl-C stops them."""
    begun = OS.monotonic_s()
    need("registry", "busway up")
    if nodes is not None and not 1 <= nodes <= NODES_MAX:
        raise CommandFailed(f"--nodes {nodes}: give a number from 1 to {NODES_MAX}")
    if nodes is not None and metrics is not None:
        raise CommandFailed(
            "--metrics is one address, and --nodes starts several brokers; give each its own metrics.listener with busway broker"
        )
    from busway_bus import cli_entry as bus

    log_to_stderr(log_level, log_format)

    async def main() -> None:
        make_home(data)
        check_folder(data, nodes)
        # For development: no wait for further members when the first joins.
        settings = {"group.initial.rebalance.delay.ms": "0", **overrides(override)}
        if metrics is not None:
            settings["metrics.listener"] = metrics
        if insecure:
            settings["busway.insecure"] = "true"
        brokers = (
            _broker(bus, data, {"listeners": f"PLAINTEXT://{host}:{port}", **settings})
            if nodes is None
            else _brokers(bus, data, nodes, host=host, port=port, settings=settings, log=(log_level, log_format))
        )
        async with brokers as (bootstrap_servers, stopped):
            if not as_json:
                _tell(f"{'broker' if nodes is None else 'brokers'}    {bootstrap_servers}    up in {_ms(begun)}")
            # In a thread: loading the registry's libraries takes longer than the broker's start.
            cli_entry = await asyncio.to_thread(importlib.import_module, "busway_registry.cli_entry")
            database = f"sqlite+aiosqlite:///{data / 'registry.db'}"
            registry_settings = cli_entry.RegistryConfig(
                host=host, port=registry_port, database=database, insecure=insecure
            )
            async with cli_entry.RegistryServer(registry_settings) as registry_server:
                garbage.settle(garbage.BROKER)
                if as_json:
                    facts = {"schema_registry": registry_server.url, "data": str(data)}
                    write_json({"bootstrap_servers": bootstrap_servers, **facts})
                    sys.stdout.flush()
                else:
                    _tell(f"registry  {registry_server.url}    up in {_ms(begun)}\ndata      {data.absolute()}\n")
                    _tell(_hint(bootstrap_servers))
                await stopped
        if not as_json:
            _tell("stopped; everything is on disk")

    serve(bus.run, main, bus.CANNOT_START)


@contextlib.asynccontextmanager
async def _broker(bus: Any, data: Path, settings: dict[str, str]) -> AsyncIterator[tuple[str, "asyncio.Future[Any]"]]:
    """Run one broker in this process; yield its address, and a future of the end."""
    node = bus.Node(bus.BrokerConfig.from_properties({"log.dirs": str(data / "broker"), **settings}))
    await node.start()
    stopped = until_signal(node.failed)  # before the address is printed: a reader may send a signal at once
    try:
        yield node.bootstrap_servers, stopped
    finally:
        stopped.cancel()
        await node.stop()
    if node.failed.is_set():
        raise CommandFailed(f"the disk under {data} failed; see the log above")


@contextlib.asynccontextmanager
async def _brokers(
    bus: Any, data: Path, count: int, *, host: str, port: int, settings: dict[str, str], log: tuple[str, str]
) -> AsyncIterator[tuple[str, "asyncio.Future[Any]"]]:
    """Run the brokers of a cluster; yield their addresses, and a future of the end."""
    files = files_of(data, count)
    held = [bus.HeldPort() for _ in range(count if port == 0 else 0)]
    held_for_controllers = [bus.HeldPort() for _ in files]
    try:
        prepare(
            bus,
            files,
            settings_of(
                files,
                host=host,
                ports=[each.number for each in held] or list(range(port, port + count)),
                controller_ports=[each.number for each in held_for_controllers],
                overrides=settings,
            ),
        )
        async with nodes_running(files, log_level=log[0], log_format=log[1]) as started:
            yield started.bootstrap_servers, asyncio.ensure_future(started.stopping.asked.wait())
    finally:
        for each in (*held, *held_for_controllers):
            each.release()


def make_home(folder: Path, remedy: str = "--data FOLDER takes another one") -> None:
    """Create a data folder, with a `.gitignore` that keeps it out of the service's repository.

    Raises:
        CommandFailed: it cannot be created; names the option for another one.
    """
    try:
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if new:
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as problem:
        raise CommandFailed(f"data folder {folder.absolute()}: {problem.strerror or problem}; {remedy}") from None


def _tell(text: str) -> None:
    typer.echo(text)
    sys.stdout.flush()


def _ms(begun: float) -> str:
    return f"{(OS.monotonic_s() - begun) * 1000:.0f} ms"


def _hint(bootstrap: str) -> str:
    given = "" if bootstrap.endswith(":9092") else f" -b {bootstrap}"
    return (
        "try, in another terminal:\n"
        f"  busway topics create greetings --partitions 3{given}\n"
        f"  echo hello | busway produce greetings{given}\n"
        f"  busway consume greetings --from-beginning{given}\n\n"
        "Ctrl-C stops"
    )


def broker(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A server.properties file with Kafka's names.")
    ] = None,
    override: Override = None,
    data: Annotated[Path | None, typer.Option("--data", help="Data directory: the setting log.dirs.")] = None,
    insecure: Insecure = False,
    log_level: LogLevel = LOG_LEVEL,
    log_format: LogFormat = "text",
    as_json: AsJson = False,
) -> None:
    """Start a broker with Kafka's settings; a new data directory is formatted automatically."""
    from busway_bus import cli_entry as bus

    log_to_stderr(log_level, log_format)

    def started(node: Any) -> None:
        if as_json:
            write_json({"bootstrap_servers": node.bootstrap_servers, "data": node.config.data_dir})
        else:
            kind = "controller  " if node.config.is_controller_alone else "broker    "
            typer.echo(f"{kind}{node.bootstrap_servers}\ndata      {node.config.data_dir}\nCtrl-C stops")
        sys.stdout.flush()

    async def main() -> None:
        properties = bus.read_properties(str(config)) if config is not None else {}
        properties.update(overrides(override))
        if data is not None:
            properties["log.dirs"] = str(data)
        elif not properties.keys() & {"log.dirs", "log.dir"}:
            make_home(HOME)
            properties["log.dirs"] = str(HOME / "broker")
        if insecure:
            properties["busway.insecure"] = "true"
        with end_with_parent():
            await bus.serve(bus.BrokerConfig.from_properties(properties), started)

    serve(bus.run, main, bus.CANNOT_START)


def registry(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 takes a free one.")] = 8081,
    database: Annotated[
        str, typer.Option("--database", help="sqlite:///FILE, postgresql://user:password@host:5432/name, or memory:")
    ] = "",
    compatibility: Annotated[
        str, typer.Option("--compatibility", help="Compatibility level of subjects without one.")
    ] = "BACKWARD",
    insecure: Insecure = False,
    log_level: LogLevel = LOG_LEVEL,
    log_format: LogFormat = "text",
    as_json: AsJson = False,
) -> None:
    """Start a schema registry with Confluent's REST API; its default database is that of `busway up` in ./.busway."""
    need("registry", "busway registry")
    from busway_registry import cli_entry as package

    if not database:
        make_home(HOME, "--database URL keeps it elsewhere")
        database = f"sqlite+aiosqlite:///{HOME / 'registry.db'}"
    log_to_stderr(log_level, log_format)

    async def main() -> None:
        settings = package.RegistryConfig(
            host=host,
            port=port,
            database=database,
            compatibility_level=package.parse_level(compatibility),
            insecure=insecure,
        )
        async with package.RegistryServer(settings) as server:
            garbage.settle()
            stopped = until_signal()
            if as_json:
                write_json({"schema_registry": server.url, "database": server.database})
            else:
                typer.echo(f"registry  {server.url}\ndatabase  {server.database}\nCtrl-C stops")
            sys.stdout.flush()
            await stopped

    serve(package.run, main, package.CANNOT_START)
