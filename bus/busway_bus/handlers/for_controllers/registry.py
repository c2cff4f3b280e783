"""THE list of a controller's handlers, from which its ApiVersions is computed.

Here: the handler modules, with those of brokers that change the metadata by commands alone.
Not here: anything about a single API, a broker's handlers (`handlers.registry`).
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Final

from busway_bus.handlers import (
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    sasl_handshake,
    unregister_broker,
    update_features,
)
from busway_bus.handlers.for_controllers import (
    allocate_producer_ids,
    alter_partition,
    api_versions,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    describe_cluster,
    describe_quorum,
    end_quorum_epoch,
    envelope,
    fetch,
    fetch_snapshot,
    vote,
)
from busway_bus.handlers.for_controllers.api_versions import advertise
from busway_bus.handlers.for_controllers.envelope import unpack_with
from busway_bus.handlers.registry import Handler, handler_of

MODULES: Final[tuple[ModuleType, ...]] = (
    fetch,
    api_versions,
    vote,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch_snapshot,
    describe_quorum,
    describe_cluster,
    envelope,
    allocate_producer_ids,
    broker_registration,
    broker_heartbeat,
    unregister_broker,
    alter_partition,
    assign_replicas_to_dirs,
    sasl_handshake,
    create_topics,
    delete_topics,
    describe_configs,
    alter_configs,
    create_partitions,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    update_features,
)
HANDLERS: Final[Mapping[int, Handler]] = {int(module.API): handler_of(module) for module in MODULES}
advertise([(handler.key, handler.min_version, handler.max_version) for handler in HANDLERS.values()])
unpack_with(HANDLERS)
