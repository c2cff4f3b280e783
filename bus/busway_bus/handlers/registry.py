"""THE list of handlers, from which ApiVersions is computed.

Here: the handler modules, and their checks.
Not here: a single API. A module without *Not supported* leaves nothing out.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from busway_bus.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_share_group_offsets,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    read_share_group_state,
    read_share_group_state_summary,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_share_group_state,
    write_txn_markers,
)
from busway_bus.handlers.api_versions import advertise
from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access
from busway_protocol.apis import ApiKey, api

MODULES: Final[tuple[ModuleType, ...]] = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    sasl_handshake,
    api_versions,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    write_txn_markers,
    txn_offset_commit,
    describe_configs,
    alter_configs,
    describe_log_dirs,
    create_partitions,
    delete_groups,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    offset_delete,
    describe_quorum,
    update_features,
    describe_cluster,
    describe_producers,
    unregister_broker,
    describe_transactions,
    list_transactions,
    consumer_group_heartbeat,
    consumer_group_describe,
    list_config_resources,
    describe_topic_partitions,
    share_group_heartbeat,
    share_group_describe,
    initialize_share_group_state,
    read_share_group_state,
    write_share_group_state,
    delete_share_group_state,
    read_share_group_state_summary,
    describe_share_group_offsets,
    alter_share_group_offsets,
    delete_share_group_offsets,
    share_fetch,
    share_acknowledge,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """One API of this broker.

    Attributes:
        advertised_min: below `min_version` only if old clients need it.
        pipelined: a connection's next request may begin before this response.
        feature: needed to be advertised; empty for always.
        needs: permissions of the client; of several, the request's content decides.
    """

    key: ApiKey
    min_version: int
    max_version: int
    advertised_min: int
    pipelined: bool
    feature: str
    needs: tuple[Access, ...]
    handle: Callable[[Any, RequestContext], Any | Awaitable[Any]]


def handler_of(module: ModuleType) -> Handler:
    key: ApiKey = module.API
    low, high = module.VERSIONS
    protocol_api = api(key)
    assert protocol_api.min_version <= low <= high <= protocol_api.max_version, module.__name__
    return Handler(
        key=key,
        min_version=low,
        max_version=high,
        advertised_min=getattr(module, "ADVERTISED_MIN", low),
        pipelined=getattr(module, "PIPELINED", False),
        feature=getattr(module, "FEATURE", ""),
        needs=module.NEEDS,
        handle=module.handle,
    )


HANDLERS: Final[Mapping[int, Handler]] = {int(module.API): handler_of(module) for module in MODULES}
ON_CONTROLLER_LISTENERS: Final = frozenset(
    {
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.UNREGISTER_BROKER,
    }
)
"""The APIs that Kafka's message definitions have on a controller's listeners, as far as a broker serves them.

Those between voters (Fetch, Vote, BeginQuorumEpoch, EndQuorumEpoch) are left out: this node is the only voter.
"""
advertise([(h.key, h.advertised_min, h.max_version, h.feature) for h in HANDLERS.values()], ON_CONTROLLER_LISTENERS)
