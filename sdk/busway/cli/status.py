"""`busway status`.

Here: the state of a cluster and its registry at one moment.
Not here: rates (`top`), causes of failures (`doctor`).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from busway.admin.admin import Admin
from busway.admin.cluster import ClusterDescription
from busway.cli.output import BOOTSTRAP, REGISTRY_URL, AsJson, Bootstrap, RegistryUrl, run, show_rows, write_json
from busway.cli.progress import GroupProgress, is_offline, is_under_replicated, read_ends, read_groups
from busway.cluster.metadata import TopicInfo
from busway.errors import BuswayError
from busway.serde.registry import RegistryClient

Row = dict[str, Any]
_REGISTRY_TIMEOUT_S: Final = 3.0
_BROKERS: Final = ("broker", "host", "port", "leads", "replicas", "controller")
_TOPICS: Final = ("topic", "partitions", "replicas", "under_replicated", "offline", "end_offsets")
_GROUPS: Final = ("group", "type", "state", "topics", "lag")


@dataclass(frozen=True, slots=True)
class RegistryState:
    """A registry: its number of subjects, or why it is not reachable."""

    url: str
    subjects: int | None
    problem: str | None


def status(
    bootstrap: Bootstrap = BOOTSTRAP,
    url: RegistryUrl = REGISTRY_URL,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show brokers, topics, partitions without a leader or with replicas out of sync, groups with lag, registry."""

    async def work() -> tuple[ClusterDescription, list[TopicInfo], dict[Any, int], list[GroupProgress], RegistryState]:
        registry = asyncio.ensure_future(_registry(url))
        try:
            async with Admin(bootstrap) as admin:
                cluster = await admin.describe_cluster()
                described = list((await admin.describe_topics()).values())
                ends = await read_ends(admin, described)
                return cluster, described, ends, await read_groups(admin, ends), await registry
        finally:
            registry.cancel()

    cluster, described, ends, groups, registry = run(work())
    topics = sorted(
        (topic for topic in described if internal or not topic.internal or _is_troubled(topic)),
        key=lambda topic: topic.name,
    )
    lengths: dict[str, int] = {}
    for partition, end in ends.items():
        lengths[partition.topic] = lengths.get(partition.topic, 0) + end
    brokers = _broker_rows(cluster, described)
    topic_rows = [_topic_row(topic, lengths) for topic in topics]
    group_rows = [_group_row(group) for group in groups]
    troubled = list(_troubled_rows(described))
    if as_json:
        write_json(
            {
                "cluster_id": cluster.cluster_id,
                "controller": cluster.controller,
                "registry": {"url": registry.url, "subjects": registry.subjects, "problem": registry.problem},
                "brokers": brokers,
                "topics": topic_rows,
                "partitions_in_trouble": troubled,
                "groups": group_rows,
            }
        )
        return
    typer.echo(f"cluster   {cluster.cluster_id}, controller {cluster.controller}")
    typer.echo(f"registry  {registry.url}, {_described(registry)}")
    offline, under = (sum(row["state"] == state for row in troubled) for state in ("offline", "under-replicated"))
    count = sum(len(topic.partitions) for topic in described)
    typer.echo(f"partitions {count}, offline {offline}, under-replicated {under}")
    _section("brokers", brokers, _BROKERS)
    _section("topics", topic_rows, _TOPICS)
    if troubled:
        _section("partitions in trouble", troubled, ())
    _section("groups", group_rows, _GROUPS)


def _section(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    typer.echo(f"\n{title}" if rows else f"\n{title}: none")
    if rows:
        show_rows(rows, as_json=False, title=title, columns=columns)


def _described(registry: RegistryState) -> str:
    return registry.problem or f"{registry.subjects} subjects"


async def _registry(url: str) -> RegistryState:
    try:
        async with RegistryClient(url, timeout_s=_REGISTRY_TIMEOUT_S) as client:
            return RegistryState(client.url, len(await client.subjects()), None)
    except BuswayError as problem:
        return RegistryState(url.rpartition("@")[2], None, f"not usable: {problem}")


def _broker_rows(cluster: ClusterDescription, topics: Iterable[TopicInfo]) -> list[Row]:
    partitions = [partition for topic in topics for partition in topic.partitions]
    return [
        {
            "broker": node_id,
            "host": host,
            "port": port,
            "leads": sum(partition.leader == node_id for partition in partitions),
            "replicas": sum(node_id in partition.replicas for partition in partitions),
            "controller": node_id == cluster.controller,
        }
        for node_id, (host, port) in sorted(cluster.brokers.items())
    ]


def _is_troubled(topic: TopicInfo) -> bool:
    return any(is_offline(partition) or is_under_replicated(partition) for partition in topic.partitions)


def _topic_row(topic: TopicInfo, lengths: Mapping[str, int]) -> Row:
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "replicas": max((len(partition.replicas) for partition in topic.partitions), default=0),
        "under_replicated": sum(map(is_under_replicated, topic.partitions)),
        "offline": sum(map(is_offline, topic.partitions)),
        "end_offsets": lengths.get(topic.name, 0),
    }


def _troubled_rows(topics: Iterable[TopicInfo]) -> Iterable[Row]:
    for topic in topics:
        for partition in topic.partitions:
            if is_offline(partition) or is_under_replicated(partition):
                yield {
                    "topic": topic.name,
                    "partition": partition.number,
                    "state": "offline" if is_offline(partition) else "under-replicated",
                    "leader": partition.leader if partition.leader >= 0 else None,
                    "replicas": list(partition.replicas),
                    "isr": list(partition.isr),
                }


def _group_row(group: GroupProgress) -> Row:
    return {
        "group": group.group_id,
        "type": group.kind,
        "state": group.state,
        "topics": sorted({partition.topic for partition in group.offsets}),
        "lag": sum(group.lags.values()) if group.lags else None,
    }
