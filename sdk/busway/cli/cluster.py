"""`busway cluster`: data directories before the first start, and the nodes of a running cluster.

Here: options and output.
Not here: the directory's content (the bus extra), the requests (`busway.admin`).
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from busway.admin.admin import Admin
from busway.cli.output import BOOTSTRAP, AsJson, Bootstrap, CommandFailed, run, show, show_rows
from busway.cli.starting import overrides

app = typer.Typer(help="Format data directories, and describe the nodes of a cluster.", no_args_is_help=True)
Config = Annotated[Path, typer.Option("--config", "-c", help="The node's server.properties file.")]
Override = Annotated[
    list[str] | None,
    typer.Option("--override", "-o", help="A setting by Kafka's name, name=value; counts more than the file."),
]


@app.command("random-uuid")
def random_uuid() -> None:
    """Print a new cluster id."""
    from busway_bus import cli_entry as bus

    typer.echo(bus.random_cluster_id())


@app.command("format")
def format_(
    config: Config,
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", "-t", help="The same for all nodes; busway cluster random-uuid prints one.")
    ],
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="Leave a directory that is formatted for this cluster.")
    ] = False,
    override: Override = None,
    as_json: AsJson = False,
) -> None:
    """Format a node's data directory, once before its first start."""
    from busway_bus import cli_entry as bus

    try:
        settings = _settings(bus, config, override)
        new = bus.format_node(settings, bus.check_cluster_id(cluster_id))
    except ValueError as problem:
        raise CommandFailed(str(problem)) from None
    except bus.CANNOT_START as problem:
        raise CommandFailed(_text(problem)) from None
    if not new and not ignore_formatted:
        raise CommandFailed(
            f"the data directory {settings.data_dir} is formatted for this cluster already; --ignore-formatted accepts that"
        )
    facts = {"directory": settings.data_dir, "node_id": settings.node_id, "cluster_id": cluster_id, "formatted": new}
    done = "formatted" if new else "was formatted already"
    show(facts, f"{settings.data_dir} {done} for node {settings.node_id} of the cluster {cluster_id}", as_json=as_json)


@app.command("info")
def info(config: Config, override: Override = None, as_json: AsJson = False) -> None:
    """Show which cluster and node a data directory is formatted for."""
    from busway_bus import cli_entry as bus

    try:
        settings = _settings(bus, config, override)
        properties = bus.properties_of(settings)
    except bus.CANNOT_START as problem:
        raise CommandFailed(_text(problem)) from None
    if properties is None:
        raise CommandFailed(f"the data directory {settings.data_dir} is not formatted; busway cluster format does that")
    rows = [
        {"property": name, "value": value} for name, value in {"directory": settings.data_dir, **properties}.items()
    ]
    show_rows(rows, as_json=as_json, title="properties")


@app.command("status")
def status(bootstrap: Bootstrap = BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show every node: its role, address, and how far it has the metadata log."""

    async def work() -> list[dict[str, Any]]:
        async with Admin(bootstrap) as admin:
            cluster = await admin.describe_cluster(include_fenced=True)
            quorum = await admin.describe_quorum()
        rows = []
        for node_id in sorted({*cluster.brokers, *quorum.replicas}):
            broker, replica = cluster.brokers.get(node_id), quorum.replicas.get(node_id)
            roles = ["broker"] if broker is not None else []
            if replica is not None and replica.votes:
                roles.append("leader" if node_id == quorum.leader_id else "voter")
            rows.append(
                {
                    "node": node_id,
                    "roles": roles,
                    "address": None if broker is None else "{}:{}".format(*broker),
                    "state": "-" if broker is None else "fenced" if node_id in cluster.fenced else "active",
                    "log_end_offset": None if replica is None else replica.log_end_offset,
                    "lag": None if replica is None else max(0, quorum.log_end_offset - replica.log_end_offset),
                    "last_caught_up_ms": None if replica is None else replica.last_caught_up_ms,
                }
            )
        return rows

    show_rows(run(work()), as_json=as_json, title="nodes")


def _settings(bus: Any, config: Path, override: list[str] | None) -> Any:
    return bus.BrokerConfig.from_properties({**bus.read_properties(str(config)), **overrides(override)})


def _text(problem: Exception) -> str:
    return (
        str(problem)
        if not isinstance(problem, OSError) or not problem.strerror
        else f"{problem.filename}: {problem.strerror}"
    )
