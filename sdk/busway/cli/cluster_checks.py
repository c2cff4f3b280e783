"""Checks of a cluster for `busway doctor`: connecting, authenticating, versions, partitions, clock.

Here: each address by itself, then the cluster as its brokers describe it.
Not here: texts of refused connections (`busway.net.tls`, `busway.net.sasl`, `busway.net.connection`).
"""

import asyncio
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import busway
from busway.cli.findings import Finding, compare_clocks, ok, problem, warning
from busway.cluster.client import parse_addresses
from busway.errors import BuswayError
from busway.net.connection import Connection
from busway.net.machine import OS
from busway.net.sasl import ClientSecurity
from busway.security.options import PLAINTEXT, SecurityOptions
from busway_protocol.apis import APIS, ApiKey, negotiate
from busway_protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from busway_protocol.messages.metadata import MetadataRequest, MetadataResponse
from busway_protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse, PartitionQuery, TopicQuery

_TIMEOUT_S: Final = 5.0
_EXPIRES_SOON_S: Final = 14 * 86_400
_NAMED_MAX: Final = 3
_METADATA_VERSION: Final = "metadata.version"
_QUORUM: Final = DescribeQuorumRequest(
    topics=[TopicQuery(topic_name="__cluster_metadata", partitions=[PartitionQuery(partition_index=0)])]
)
NEEDED: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.INIT_PRODUCER_ID,
)
"""APIs without which a producer, or a consumer of a group, does not work."""


@dataclass(frozen=True, slots=True)
class ClusterChecks:
    """Findings, and the cluster's id if a broker was reached."""

    findings: list[Finding]
    cluster_id: str | None


async def check_cluster(bootstrap: str, options: SecurityOptions) -> ClusterChecks:
    """Check the bootstrap addresses, then every broker.

    Raises:
        ValueError: an address is not host:port.
    """
    security = None if options == PLAINTEXT else ClientSecurity(options)
    addresses = list(dict.fromkeys(parse_addresses(bootstrap)))
    reached = await asyncio.gather(*(_check_bootstrap(*address, security) for address in addresses))
    findings = [finding for finding, _, _ in reached]
    metadata, clock = next(((metadata, clock) for _, metadata, clock in reached if metadata is not None), (None, []))
    if metadata is None:
        return ClusterChecks(findings, None)
    findings += clock
    checked = await asyncio.gather(
        *(_check_broker(node.node_id, node.host, node.port, security) for node in metadata.brokers)
    )
    findings += [finding for of_broker, _ in checked for finding in of_broker]
    versions = {
        node.node_id: answer for node, (_, answer) in zip(metadata.brokers, checked, strict=True) if answer is not None
    }
    findings += compare_versions(versions)
    findings += check_partitions(metadata)
    return ClusterChecks(findings, metadata.cluster_id)


async def _check_bootstrap(
    host: str, port: int, security: ClientSecurity | None
) -> tuple[Finding, MetadataResponse | None, list[Finding]]:
    """Check an address; return the cluster's metadata and the check of the controller's clock too."""
    subject = f"bootstrap server {host}:{port}"
    connection = _connection(host, port, security)
    try:
        await connection.connect()
        metadata = await connection.request(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        clock = await _check_clock(connection)
    except BuswayError as refused:
        return problem(subject, f"{refused}{_remedy(refused)}"), None, []
    finally:
        connection.close()
    return ok(subject, f"reached cluster {metadata.cluster_id}"), metadata, clock


async def _check_broker(
    node_id: int, host: str, port: int, security: ClientSecurity | None
) -> tuple[list[Finding], ApiVersionsResponse | None]:
    """Check a broker at the address that it advertises."""
    subject = f"broker {node_id}"
    connection = _connection(host, port, security)
    try:
        await connection.connect()
        versions = await connection.request(
            ApiVersionsRequest(client_software_name="busway-doctor", client_software_version=busway.__version__)
        )
        findings = [ok(subject, f"reached at the address that it advertises, {host}:{port}")]
        findings += _check_certificate(subject, connection.certificate_ends_s)
        findings += check_versions(subject, versions)
    except BuswayError as refused:
        text = (
            f"{refused}{_remedy(refused)}; this is the address that the broker advertises, check advertised.listeners"
        )
        return [problem(subject, text)], None
    finally:
        connection.close()
    return findings, versions


def _connection(host: str, port: int, security: ClientSecurity | None) -> Connection:
    return Connection(host, port, client_id="busway-doctor", timeout_s=_TIMEOUT_S, security=security)


def _remedy(refused: BuswayError) -> str:
    """Return the remedy of a failure below TLS and Kafka's protocol; the other texts have theirs."""
    match refused.__context__:
        case socket.gaierror():
            return "; check the spelling of the host name, and that this machine's DNS or /etc/hosts has it"
        case ConnectionRefusedError():
            return "; nothing listens there: start the broker (`busway up`), or check the port"
        case TimeoutError():
            return "; the host is down or frozen, or a firewall drops the packets: check both"
        case OSError() if "ssl" not in type(refused.__context__).__module__:
            return "" if ";" in str(refused) else "; check the address, and the network between"
    return ""


def _check_certificate(subject: str, ends_s: float | None) -> list[Finding]:
    if ends_s is None or (left_s := ends_s - OS.wall_ms() / 1000) > _EXPIRES_SOON_S:
        return []
    text = f"its certificate expires in {max(0, left_s) / 86_400:.0f} days; renew it on the broker"
    return [warning(subject, text)]


def check_versions(subject: str, versions: ApiVersionsResponse) -> list[Finding]:
    """Check that client and broker have a version of every needed API in common."""
    offered = {entry.api_key: (entry.min_version, entry.max_version) for entry in versions.api_keys}
    missing = [APIS[key].name for key in NEEDED if key not in offered or negotiate(key, offered[key]) is None]
    if not missing:
        return []
    return [
        problem(
            subject,
            f"no version of {_listed(missing)} in common with this client, busway {busway.__version__}; upgrade the "
            "broker, or take a client of its time",
        )
    ]


def compare_versions(versions: Mapping[int, ApiVersionsResponse]) -> list[Finding]:
    """Compare the brokers' versions with each other and with the finalized metadata.version."""
    ranges = {
        node_id: {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
        for node_id, answer in versions.items()
    }
    findings = []
    keys = sorted({key for offered in ranges.values() for key in offered})
    differing = [key for key in keys if len({offered.get(key) for offered in ranges.values()}) > 1]
    if differing:
        names = _listed(_api_name(key) for key in differing)
        findings.append(
            warning(
                "brokers",
                f"{_listed(sorted(ranges))} serve different versions of {names}; an upgrade may be unfinished: bring all "
                "to the same release",
            )
        )
    highest = [
        feature.max_version
        for answer in versions.values()
        for feature in answer.supported_features
        if feature.name == _METADATA_VERSION
    ]
    finalized = [
        feature.max_version_level
        for answer in versions.values()
        for feature in answer.finalized_features
        if feature.name == _METADATA_VERSION
    ]
    if highest and finalized and len(highest) == len(versions) and max(finalized) < min(highest):
        findings.append(
            warning(
                "brokers",
                f"metadata.version is finalized at {max(finalized)}, and all brokers support {min(highest)}; finish the "
                f"upgrade with `busway features upgrade metadata.version={min(highest)}`",
            )
        )
    return findings


def _api_name(key: int) -> str:
    return APIS[ApiKey(key)].name if key in APIS else f"API {key}"


def check_partitions(metadata: MetadataResponse) -> list[Finding]:
    """Check that there are a controller, leaders and replicas in sync."""
    findings = []
    if metadata.controller_id < 0:
        findings.append(problem("cluster", "there is no active controller; check the controllers' logs"))
    offline, under = [], []
    for topic in metadata.topics:
        for partition in topic.partitions:
            name = f"{topic.name}-{partition.partition_index}"
            if partition.leader_id < 0:
                offline.append(name)
            elif len(partition.isr_nodes) < len(partition.replica_nodes):
                under.append(name)
    if offline:
        text = f"{len(offline)} without a leader, {_listed(offline)}; start the brokers that have their replicas"
        findings.append(problem("partitions", text))
    if under:
        text = f"{len(under)} with replicas out of sync, {_listed(under)}; check the brokers that lag or are down"
        findings.append(warning("partitions", text))
    if not offline and not under:
        findings.append(ok("partitions", "all have a leader and all replicas in sync"))
    return findings


async def _check_clock(connection: Connection) -> list[Finding]:
    """Compare the active controller's clock with this machine's; brokers forward the request to it.

    The leader of the metadata log reports the present as its own last fetch (KIP-836; Kafka's `RaftUtil`).
    """
    before_ms = OS.wall_ms()
    try:
        answer: DescribeQuorumResponse = await connection.request(_QUORUM)
    except BuswayError:  # not served before Apache Kafka 3.3; a broker without a controller does not answer
        return []
    after_ms = OS.wall_ms()
    times = [
        voter.last_fetch_timestamp
        for topic in answer.topics
        for partition in topic.partitions
        for voter in partition.current_voters
        if partition.error_code == 0 and voter.replica_id == partition.leader_id and voter.last_fetch_timestamp > 0
    ]
    if answer.error_code or not times:  # such as CLUSTER_AUTHORIZATION_FAILED
        return []
    return [compare_clocks("controller", times[0], before_ms, after_ms)]


def _listed(names: Iterable[object]) -> str:
    texts = list(map(str, names))
    more = f" and {len(texts) - _NAMED_MAX} more" if len(texts) > _NAMED_MAX else ""
    return ", ".join(texts[:_NAMED_MAX]) + more
