"""`busway up`, `busway broker`, `busway registry`.

Here: options → settings, output at start.
Not here: the servers, which are extras.
"""

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from busway.cli.logs import LogFormat, LogLevel, log_to_stderr
from busway.cli.output import AsJson, CommandFailed, write_json
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
    log_level: LogLevel = LOG_LEVEL,
    log_format: LogFormat = "text",
    as_json: AsJson = False,
) -> None:
    """Start a broker and a schema registry; Ctrl-C stops them."""
    begun = OS.monotonic_s()
    need("registry", "busway up")
    from busway_bus import cli_entry as bus

    log_to_stderr(log_level, log_format)

    async def main() -> None:
        make_home(data)
        config = bus.BrokerConfig.from_properties(
            {
                "listeners": f"PLAINTEXT://{host}:{port}",
                "log.dirs": str(data / "broker"),
                # For development: no wait for further members when the first joins.
                "group.initial.rebalance.delay.ms": "0",
                **overrides(override),
                **({"metrics.listener": metrics} if metrics is not None else {}),
                **({"busway.insecure": "true"} if insecure else {}),
            }
        )
        node = bus.Node(config)
        await node.start()
        stopped = until_signal(node.failed)  # before the address is printed: a reader may send a signal at once
        try:
            if not as_json:
                _tell(f"broker    {node.bootstrap_servers}    up in {_ms(begun)}")
            # In a thread: loading the registry's libraries takes longer than the broker's start.
            cli_entry = await asyncio.to_thread(importlib.import_module, "busway_registry.cli_entry")
            database = f"sqlite+aiosqlite:///{data / 'registry.db'}"
            settings = cli_entry.RegistryConfig(host=host, port=registry_port, database=database, insecure=insecure)
            async with cli_entry.RegistryServer(settings) as registry_server:
                garbage.settle(garbage.BROKER)
                if as_json:
                    facts = {"schema_registry": registry_server.url, "data": str(data)}
                    write_json({"bootstrap_servers": node.bootstrap_servers, **facts})
                    sys.stdout.flush()
                else:
                    _tell(f"registry  {registry_server.url}    up in {_ms(begun)}\ndata      {data.absolute()}\n")
                    _tell(_hint(node.bootstrap_servers))
                await stopped
        finally:
            stopped.cancel()
            await node.stop()
        if node.failed.is_set():
            raise CommandFailed(f"the disk under {data} failed; see the log above")
        if not as_json:
            _tell("stopped; everything is on disk")

    serve(bus.run, main, bus.CANNOT_START)


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
