"""`busway check`.

Here: what the start of a service would meet on live brokers and registry; nothing is created or registered.
Not here: starting it (`running`), the state of the cluster (`doctor`).
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import typer

from busway.admin.admin import BROKER, Admin
from busway.admin.new_topic import NewTopic
from busway.admin.share_groups import SHARE
from busway.app.declaring.declared_topics import read_only_topics
from busway.app.model.topic import BadDeclaration, Topic
from busway.app.serdes import PARTS
from busway.app.tables.global_table import GlobalTable
from busway.app.tables.table import Table, sources_of
from busway.cli.findings import Finding, ok, problem, report, warning
from busway.cli.output import AsJson, run
from busway.cli.running import find_app
from busway.cluster.client import ClusterClient
from busway.cluster.metadata import TopicInfo
from busway.errors import BrokerError, BuswayError, UnsupportedByBroker
from busway.serde.naming import Part
from busway.serde.records import CannotInfer
from busway.serde.registered import RegisteredAvro
from busway.serde.registry import RegistryClient, RegistryRefused
from busway.serde.registry_errors import breaches as readable
from busway.testable_app import App
from busway_protocol.apis import ApiKey

_AUTO_CREATE: Final = "auto.create.topics.enable"
_NO_SUBJECT: Final = 40401
_READER_LEVELS: Final = ("BACKWARD", "FULL")
"""Levels whose check says whether a new schema reads the data of the last one."""


def check(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app, such as shop.service:app.")],
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers", "-b", envvar="BUSWAY_BOOTSTRAP_SERVERS", help="Brokers; override the app's."
        ),
    ] = None,
    registry_url: Annotated[
        str | None,
        typer.Option("--registry", "-r", envvar="BUSWAY_SCHEMA_REGISTRY", help="Schema registry; overrides the app's."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a service's topics, schemas and groups against live ones, changing nothing; exit with 1 at a problem."""
    app = find_app(target)
    if bootstrap is not None:
        app.bootstrap_servers = bootstrap
    if registry_url is not None:
        app.schema_registry = registry_url
    report(run(check_app(app)), as_json=as_json)


async def check_app(app: App) -> list[Finding]:
    return [*await _check_brokers(app), *await _check_schemas(app)]


async def _check_brokers(app: App) -> list[Finding]:
    try:
        async with Admin(app.bootstrap_servers, client_id=app.name, security=app.security) as admin:
            live = await admin.describe_topics()
            creates = await _brokers_create(admin)
            findings = [await _check_topic(app, admin, topic, live, creates) for topic in app.topics.values()]
            findings += _check_tables(app, live)
            findings += _check_groups(app, {group.group_id: group.kind for group in await admin.list_groups()})
        return findings + await _check_queues(app)
    except BuswayError as failed:
        return [problem("brokers", str(failed))]


async def _brokers_create(admin: Admin) -> bool | None:
    """Return whether brokers create topics at first use; None if they do not show it."""
    try:
        cluster = await admin.describe_cluster()
        setting = (await admin.describe_configs(str(min(cluster.brokers)), kind=BROKER)).get(_AUTO_CREATE)
    except (BrokerError, UnsupportedByBroker):  # such as CLUSTER_AUTHORIZATION_FAILED
        return None
    return None if setting is None else setting.value == "true"


async def _check_topic(
    app: App, admin: Admin, topic: Topic[Any, Any], live: Mapping[str, TopicInfo], creates: bool | None
) -> Finding:
    subject = f"topic {topic.name}"
    is_table = any(
        isinstance(extension, Table | GlobalTable) and extension.topic is topic for extension in app.extensions
    )
    is_declared = topic.partitions is not None or bool(topic.configs)
    if (there := live.get(topic.name)) is not None:
        return await _compare(admin, topic, there)
    if is_table:
        return ok(subject, "does not exist yet; the start creates it for the table")
    if is_declared:
        try:
            wanted = NewTopic(topic.name, topic.partitions or -1, configs=dict(topic.configs))
            await admin.create_topics([wanted], validate_only=True)
        except BrokerError as refused:
            return problem(subject, f"does not exist, and the brokers would not create it: {refused}")
        return ok(subject, "does not exist yet; the start creates it as declared")
    close = difflib.get_close_matches(topic.name, live, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    remedy = f"{hint}create it first, or declare partitions="
    if topic.name in read_only_topics(app):
        return problem(subject, f"does not exist, and is read_only: its writer creates it; {remedy}")
    if creates is False:
        return problem(subject, f"does not exist, and brokers have {_AUTO_CREATE}=false; {remedy}")
    return warning(subject, f"does not exist; brokers with {_AUTO_CREATE} create it at its first use; {remedy}")


async def _compare(admin: Admin, topic: Topic[Any, Any], there: TopicInfo) -> Finding:
    """Compare a topic with its declaration, which changes no existing one."""
    subject, count = f"topic {topic.name}", len(there.partitions)
    differences = []
    if topic.partitions is not None and topic.partitions != count:
        differences.append(f"it has {count} partitions, {topic.partitions} are declared")
    if topic.configs:
        live = await admin.describe_configs(topic.name)
        differences += [
            f"{name} is {live[name].value if name in live else 'unknown'}, {value} is declared"
            for name, value in topic.configs
            if name not in live or live[name].value != value
        ]
    if differences:
        return warning(
            subject,
            f"{'; '.join(differences)}; the start does not change it: `busway topics alter {topic.name}`, or the declaration",
        )
    return ok(subject, f"exists with {count} partition{'s' * (count != 1)}")


def _check_tables(app: App, live: Mapping[str, TopicInfo]) -> Iterable[Finding]:
    """Check that a table and its sources have the same number of partitions."""
    for extension in app.extensions:
        if isinstance(extension, Table):
            names = {extension.topic.name, *sources_of(extension, app.routes)}
            counts = {name: len(live[name].partitions) for name in sorted(names) if name in live}
            if len(set(counts.values())) > 1:
                shown = ", ".join(f"{name} has {count}" for name, count in counts.items())
                text = f"it and its sources must have as many partitions as each other, but {shown}"
                yield problem(
                    f"table {extension.topic.name}", f"{text}; create the table's topic again, or other sources"
                )


def _check_groups(app: App, kinds: Mapping[str, str]) -> Iterable[Finding]:
    """Check that no group has a name that another kind of group has."""
    if app.routes and kinds.get(app.group_id) == SHARE:
        text = (
            "it is a share group on the brokers, and the app's handlers need a consumer group; give App(…, group_id=…)"
        )
        yield problem(f"group {app.group_id}", text)
    for group in sorted({route.group for route in app.queue_routes if route.group is not None}):
        if kinds.get(group, SHARE) != SHARE:
            text = f"it is a group of the type {kinds[group]} on the brokers; give the queue another group="
            yield problem(f"queue {group}", text)


async def _check_queues(app: App) -> list[Finding]:
    if not app.queue_routes:
        return []
    cluster = ClusterClient(app.bootstrap_servers, client_id=app.name, security=app.security)
    try:
        await cluster.start()
        (await cluster.any_connection()).version(ApiKey.SHARE_FETCH)
    except UnsupportedByBroker as refused:
        return [problem("queues", f"{refused}; queues need Busway, or Apache Kafka from 4.2 on")]
    finally:
        await cluster.close()
    return []


async def _check_schemas(app: App) -> list[Finding]:
    findings: list[Finding] = []
    serdes = app.new_serdes()
    client: RegistryClient | None = None
    try:
        for topic in app.topics.values():
            for part in PARTS:
                try:
                    serde = serdes.make(topic, part)
                    if isinstance(serde, RegisteredAvro):
                        assert app.schema_registry is not None  # else `make` has raised
                        client = client or RegistryClient(app.schema_registry)
                        findings.append(await _check_schema(client, topic, part, serde))
                except (BadDeclaration, CannotInfer) as refused:
                    findings.append(problem(f"{part} of topic {topic.name}", str(refused)))
    except BuswayError as failed:
        findings.append(problem("schema registry", str(failed)))
    finally:
        await serdes.close()
        if client is not None:
            await client.close()
    return findings


async def _check_schema(client: RegistryClient, topic: Topic[Any, Any], part: Part, serde: RegisteredAvro) -> Finding:
    """Check a type's schema against its subject.

    Raises:
        RegistryUnreachable, RegistryRefused: the registry does not answer, or refuses the request itself.
    """
    name = serde.subject(topic.name)
    subject = f"subject {name}"
    if topic.read_only:
        return await _check_reader(client, subject, name, serde)
    if (schema_id := await client.lookup(name, serde.schema_text)) is not None:
        return ok(subject, f"the {part}'s schema, {serde.name}, is registered with id {schema_id}")
    if not serde.registers:
        text = f"the {part}'s schema, {serde.name}, is not registered, and the app registers none; register it first"
        return problem(subject, f"{text} (`busway schema register {name} FILE`)")
    if breaches := await client.check(name, serde.schema_text):
        level = await client.compatibility(name)
        return problem(subject, f"{'; '.join(readable(breaches))}; {serde.name} is not compatible by {level}")
    return ok(subject, f"the {part}'s schema, {serde.name}, is new and compatible; the start registers it")


async def _check_reader(client: RegistryClient, subject: str, name: str, serde: RegisteredAvro) -> Finding:
    """Check that a type reads the records of the newest schema, as far as the subject's level says so."""
    try:
        newest = await client.version(name)
    except RegistryRefused as refused:
        if refused.code != _NO_SUBJECT:
            raise
        return warning(
            subject, f"it has no schema yet, so {serde.name} cannot be compared; start the topic's writer first"
        )
    level = await client.compatibility(name)
    if not level.startswith(_READER_LEVELS):
        return ok(subject, f"its level {level} does not say whether {serde.name} reads version {newest.version}")
    if breaches := await client.check(name, serde.schema_text):
        text = f"{'; '.join(readable(breaches))}; {serde.name} may not read records of version {newest.version}"
        return warning(subject, text)
    return ok(subject, f"{serde.name} reads version {newest.version}")
