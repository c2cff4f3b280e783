"""`busway topics`."""

from typing import Annotated

import typer

from busway.admin.admin import Admin
from busway.admin.new_topic import NewTopic
from busway.cli.output import BOOTSTRAP, AsJson, Bootstrap, CommandFailed, Yes, confirm, note, run, show, show_rows
from busway.types import TopicPartition

app: typer.Typer = typer.Typer(help="List, create, describe, change and delete topics.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The topic.")]
Config = Annotated[list[str] | None, typer.Option("--config", "-c", help="name=value by Kafka's names; repeatable.")]
_EARLIEST, _LATEST = -2, -1


def _configs(given: list[str] | None) -> dict[str, str]:
    configs = {}
    for option in given or ():
        name, equals, value = option.partition("=")
        if not equals:
            raise CommandFailed(f"--config {option}: give name=value")
        configs[name.strip()] = value.strip()
    return configs


@app.command("list")
def list_topics(
    bootstrap: Bootstrap = BOOTSTRAP,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """List all topics."""

    async def work() -> list[dict[str, object]]:
        async with Admin(bootstrap) as admin:
            topics = await admin.describe_topics()
        return [
            {"topic": name, "partitions": len(topic.partitions), "replicas": len(topic.partitions[0].replicas)}
            for name, topic in sorted(topics.items())
            if internal or not topic.internal
        ]

    show_rows(run(work()), as_json=as_json, title="topics", columns=("topic", "partitions", "replicas"))


@app.command("create")
def create(
    name: Name,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1 for the broker's default.")] = -1,
    replication_factor: Annotated[int, typer.Option("--replication-factor", help="-1 for the broker's default.")] = -1,
    config: Config = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""

    async def work() -> int:
        async with Admin(bootstrap) as admin:
            await admin.create_topics([NewTopic(name, partitions, replication_factor, _configs(config))])
            return len((await admin.describe_topics([name]))[name].partitions)

    count = run(work())
    show({"topic": name, "partitions": count}, f"created {name} with {count} partitions", as_json=as_json)


@app.command("describe")
def describe(name: Name, bootstrap: Bootstrap = BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show partitions, offsets and settings of a topic."""

    async def work() -> tuple[list[dict[str, object]], dict[str, str | None]]:
        async with Admin(bootstrap) as admin:
            topic = (await admin.describe_topics([name]))[name]
            numbers = [TopicPartition(name, info.number) for info in topic.partitions]
            first = await admin.list_offsets(dict.fromkeys(numbers, _EARLIEST))
            last = await admin.list_offsets(dict.fromkeys(numbers, _LATEST))
            settings = await admin.describe_configs(name)
        rows: list[dict[str, object]] = [
            {
                "partition": info.number,
                "leader": info.leader,
                "replicas": list(info.replicas),
                "isr": list(info.isr),
                "first_offset": first.get(TopicPartition(name, info.number)),
                "end_offset": last.get(TopicPartition(name, info.number)),
            }
            for info in topic.partitions
        ]
        return rows, {setting.name: setting.value for setting in settings.values() if not setting.default}

    rows, settings = run(work())
    if as_json:
        show({"topic": name, "partitions": rows, "configs": settings}, "", as_json=True)
        return
    show_rows(rows, as_json=False, title="partitions")
    for setting, value in settings.items():
        note(f"{setting}={value}")


@app.command("alter")
def alter(
    name: Name,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", help="A setting to reset to its default.")
    ] = None,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="New number of partitions.")] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change settings, or add partitions."""

    async def work() -> None:
        changes: dict[str, str | None] = {**_configs(config), **dict.fromkeys(delete_config or (), None)}
        if not changes and partitions is None:
            raise CommandFailed("nothing to change: give --config, --delete-config or --partitions")
        async with Admin(bootstrap) as admin:
            if changes:
                await admin.alter_configs(name, changes)
            if partitions is not None:
                await admin.create_partitions({name: partitions})

    run(work())
    show({"topic": name}, f"changed {name}", as_json=as_json)


@app.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(help="Topics.")],
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records."""
    confirm(f"Delete {', '.join(names)} with all records?", yes=yes)

    async def work() -> None:
        async with Admin(bootstrap) as admin:
            await admin.delete_topics(names)

    run(work())
    show({"deleted": names}, f"deleted {', '.join(names)}", as_json=as_json)
