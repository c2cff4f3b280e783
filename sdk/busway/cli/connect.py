"""`busway connect`.

Here: options → worker settings, output at start.
Not here: the worker, an extra.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from busway.cli.logs import LogFormat, LogLevel, log_to_stderr
from busway.cli.output import AsJson, write_json
from busway.cli.starting import overrides, serve
from busway.extras import need
from busway.net import garbage
from busway.net.signals import until_signal


def connect(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A worker.properties file with Kafka Connect's names.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--override", "-o", help="name=value; overrides the file.")
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap-servers", "-b", envvar="BUSWAY_BOOTSTRAP_SERVERS", help="Brokers.")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry", "-r", envvar="BUSWAY_SCHEMA_REGISTRY", help="Write Avro through this schema registry."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on; 127.0.0.1 by default.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="Port of the REST API; 8083 by default, 0 takes a free one.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Listen beyond this machine without authentication: the network is trusted."),
    ] = False,
    log_level: LogLevel = "warning",
    log_format: LogFormat = "text",
    as_json: AsJson = False,
) -> None:
    """Start a connector worker with Kafka Connect's REST API; further workers of its group are standbys."""
    need("connect", "busway connect")
    from busway_connect import cli_entry

    log_to_stderr(log_level, log_format)
    sys.path.append(os.getcwd())  # where plugin.modules may be

    async def main() -> None:
        properties: dict[str, str] = cli_entry.read_properties(config) if config is not None else {}
        properties.update(overrides(override))
        if bootstrap is not None:
            properties["bootstrap.servers"] = bootstrap
        if host is not None:
            properties["rest.host.name"] = host
        if port is not None:
            properties["rest.port"] = str(port)
        if insecure:
            properties["busway.insecure"] = "true"
        for name in ("key.converter", "value.converter"):
            if registry is not None and name not in properties:
                properties[name] = "io.confluent.connect.avro.AvroConverter"
                properties[f"{name}.schema.registry.url"] = registry
        await _serve(cli_entry, cli_entry.WorkerConfig.from_properties(properties), as_json=as_json)

    serve(cli_entry.run, main, cli_entry.CANNOT_START)


async def _serve(cli_entry: Any, config: Any, *, as_json: bool) -> None:
    async with cli_entry.ConnectServer(config) as server:
        stopped = until_signal()
        garbage.settle()
        if as_json:
            write_json({"connect": server.url, "group": config.group_id})
        else:
            typer.echo(f"connect   {server.url}\nbus       {config.bootstrap_servers}\nCtrl-C stops")
        sys.stdout.flush()
        failed = asyncio.ensure_future(server.failed())
        await asyncio.wait([stopped, failed], return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            stopped.cancel()
            failed.result()
        failed.cancel()
