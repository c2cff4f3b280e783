"""Each handler names what it needs, as Kafka's page "Authorization operations" lists it for every API.

Where that page and Kafka's code differ, the code counts: ElectLeaders needs Alter, CreateTopics DescribeConfigs for the settings in its
answer, DescribeCluster nothing.
"""

from collections.abc import Mapping

import pytest

from busway_bus.handlers.for_controllers.registry import HANDLERS as CONTROLLER_HANDLERS
from busway_bus.handlers.for_controllers.registry import MODULES as CONTROLLER_MODULES
from busway_bus.handlers.registry import HANDLERS, MODULES, Handler
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey

KAFKA = {
    "PRODUCE": "WRITE TOPIC, WRITE TRANSACTIONAL_ID, IDEMPOTENT_WRITE CLUSTER",
    "FETCH": "READ TOPIC, CLUSTER_ACTION CLUSTER",
    "LIST_OFFSETS": "DESCRIBE TOPIC",
    "METADATA": "DESCRIBE TOPIC, CREATE TOPIC, CREATE CLUSTER",
    "OFFSET_COMMIT": "READ GROUP, READ TOPIC",
    "OFFSET_FETCH": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "FIND_COORDINATOR": "DESCRIBE GROUP, DESCRIBE TRANSACTIONAL_ID, CLUSTER_ACTION CLUSTER",
    "JOIN_GROUP": "READ GROUP",
    "HEARTBEAT": "READ GROUP",
    "LEAVE_GROUP": "READ GROUP",
    "SYNC_GROUP": "READ GROUP",
    "DESCRIBE_GROUPS": "DESCRIBE GROUP",
    "LIST_GROUPS": "DESCRIBE CLUSTER, DESCRIBE GROUP",
    "SASL_HANDSHAKE": "",
    "API_VERSIONS": "",
    "CREATE_TOPICS": "CREATE CLUSTER, CREATE TOPIC, DESCRIBE_CONFIGS TOPIC",
    "DELETE_TOPICS": "DELETE TOPIC, DESCRIBE TOPIC",
    "DELETE_RECORDS": "DELETE TOPIC",
    "INIT_PRODUCER_ID": "WRITE TRANSACTIONAL_ID, IDEMPOTENT_WRITE CLUSTER",
    "WRITE_TXN_MARKERS": "ALTER CLUSTER, CLUSTER_ACTION CLUSTER",
    "DESCRIBE_PRODUCERS": "READ TOPIC",
    "OFFSET_FOR_LEADER_EPOCH": "DESCRIBE TOPIC, CLUSTER_ACTION CLUSTER",
    "ADD_PARTITIONS_TO_TXN": "WRITE TRANSACTIONAL_ID, WRITE TOPIC, CLUSTER_ACTION CLUSTER",
    "ADD_OFFSETS_TO_TXN": "WRITE TRANSACTIONAL_ID, READ GROUP",
    "END_TXN": "WRITE TRANSACTIONAL_ID",
    "TXN_OFFSET_COMMIT": "WRITE TRANSACTIONAL_ID, READ GROUP, READ TOPIC",
    "DESCRIBE_CONFIGS": "DESCRIBE_CONFIGS CLUSTER, DESCRIBE_CONFIGS TOPIC, DESCRIBE_CONFIGS GROUP",
    "ALTER_CONFIGS": "ALTER_CONFIGS CLUSTER, ALTER_CONFIGS TOPIC, ALTER_CONFIGS GROUP",
    "DESCRIBE_LOG_DIRS": "DESCRIBE CLUSTER",
    "CREATE_PARTITIONS": "ALTER TOPIC",
    "DELETE_GROUPS": "DELETE GROUP",
    "ELECT_LEADERS": "ALTER CLUSTER",
    "INCREMENTAL_ALTER_CONFIGS": "ALTER_CONFIGS CLUSTER, ALTER_CONFIGS TOPIC, ALTER_CONFIGS GROUP",
    "ALTER_PARTITION_REASSIGNMENTS": "ALTER CLUSTER",
    "LIST_PARTITION_REASSIGNMENTS": "DESCRIBE CLUSTER",
    "OFFSET_DELETE": "DELETE GROUP, READ TOPIC",
    "DESCRIBE_QUORUM": "DESCRIBE CLUSTER",
    "UPDATE_FEATURES": "ALTER CLUSTER",
    "DESCRIBE_CLUSTER": "",
    "UNREGISTER_BROKER": "ALTER CLUSTER",
    "DESCRIBE_TRANSACTIONS": "DESCRIBE TRANSACTIONAL_ID, DESCRIBE TOPIC",
    "LIST_TRANSACTIONS": "DESCRIBE TRANSACTIONAL_ID",
    "CONSUMER_GROUP_HEARTBEAT": "READ GROUP, DESCRIBE TOPIC",
    "CONSUMER_GROUP_DESCRIBE": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "LIST_CONFIG_RESOURCES": "DESCRIBE_CONFIGS CLUSTER",
    "DESCRIBE_TOPIC_PARTITIONS": "DESCRIBE TOPIC",
    "SHARE_GROUP_HEARTBEAT": "READ GROUP, DESCRIBE TOPIC",
    "SHARE_GROUP_DESCRIBE": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "INITIALIZE_SHARE_GROUP_STATE": "CLUSTER_ACTION CLUSTER",
    "READ_SHARE_GROUP_STATE": "CLUSTER_ACTION CLUSTER",
    "WRITE_SHARE_GROUP_STATE": "CLUSTER_ACTION CLUSTER",
    "DELETE_SHARE_GROUP_STATE": "CLUSTER_ACTION CLUSTER",
    "READ_SHARE_GROUP_STATE_SUMMARY": "CLUSTER_ACTION CLUSTER",
    "DESCRIBE_SHARE_GROUP_OFFSETS": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "ALTER_SHARE_GROUP_OFFSETS": "READ GROUP, READ TOPIC",
    "DELETE_SHARE_GROUP_OFFSETS": "DELETE GROUP, READ TOPIC",
    "SHARE_FETCH": "READ GROUP, READ TOPIC",
    "SHARE_ACKNOWLEDGE": "READ GROUP, READ TOPIC",
}


CONTROLLERS = {
    "FETCH": "CLUSTER_ACTION CLUSTER",
    "FETCH_SNAPSHOT": "CLUSTER_ACTION CLUSTER",
    "API_VERSIONS": "",
    "VOTE": "CLUSTER_ACTION CLUSTER",
    "BEGIN_QUORUM_EPOCH": "CLUSTER_ACTION CLUSTER",
    "END_QUORUM_EPOCH": "CLUSTER_ACTION CLUSTER",
    "DESCRIBE_QUORUM": "DESCRIBE CLUSTER",
    "DESCRIBE_CLUSTER": "",
    "ENVELOPE": "CLUSTER_ACTION CLUSTER",
    "ALTER_PARTITION": "CLUSTER_ACTION CLUSTER",
    "BROKER_REGISTRATION": "CLUSTER_ACTION CLUSTER",
    "BROKER_HEARTBEAT": "CLUSTER_ACTION CLUSTER",
    "ALLOCATE_PRODUCER_IDS": "CLUSTER_ACTION CLUSTER",
    "ASSIGN_REPLICAS_TO_DIRS": "CLUSTER_ACTION CLUSTER",
    **{
        name: KAFKA[name]
        for name in (
            "SASL_HANDSHAKE",
            "CREATE_TOPICS",
            "DELETE_TOPICS",
            "DESCRIBE_CONFIGS",
            "ALTER_CONFIGS",
            "CREATE_PARTITIONS",
            "ELECT_LEADERS",
            "INCREMENTAL_ALTER_CONFIGS",
            "ALTER_PARTITION_REASSIGNMENTS",
            "LIST_PARTITION_REASSIGNMENTS",
            "UPDATE_FEATURES",
            "UNREGISTER_BROKER",
        )
    },
}
"""On a controller's listeners."""


@pytest.mark.parametrize(("handlers", "table"), [(HANDLERS, KAFKA), (CONTROLLER_HANDLERS, CONTROLLERS)])
def test_every_handler_names_what_kafka_asks_for(handlers: Mapping[int, Handler], table: dict[str, str]) -> None:
    """All APIs, no more and no less than the table."""
    declared = {
        ApiKey(key).name: ", ".join(f"{need.operation.name} {need.resource.name}" for need in handler.needs)
        for key, handler in handlers.items()
    }
    assert declared == table


def test_what_is_needed_is_declared_in_the_module() -> None:
    """As a tuple of `Access`, nothing that is made up on the way."""
    for module in (*MODULES, *CONTROLLER_MODULES):
        assert isinstance(module.NEEDS, tuple), module.__name__
        assert all(type(need) is Access for need in module.NEEDS), module.__name__


def test_the_numbers_are_kafkas() -> None:
    """Of `AclOperation` and `ResourceType`; they are bits of authorized operations and columns of ACLs."""
    assert [operation.value for operation in Operation] == list(range(3, 13))
    assert [resource.value for resource in Resource] == list(range(2, 6))
