"""Registrations, heartbeats, fencing and controlled shutdown, rule by rule of Kafka's ClusterControlManager."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.busway_bus.controller.members import SESSION_MS, Members, registration

from busway_bus.controller.brokers import BrokerHeartbeat, HeartbeatReply, registered
from busway_bus.controller.heartbeats import BrokerHeartbeats, BrokerState
from busway_bus.controller.lost_brokers import FenceBroker, FenceStaleBrokers, UnregisterBroker
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.log.checkpoints import uuid_text
from busway_bus.metadata.image import LOST, NO_LEADER, Address
from busway_bus.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from busway_protocol.errors import ErrorCode

# Registration


def test_a_new_broker_is_fenced_until_it_has_caught_up() -> None:
    """Its epoch is the offset of its registration."""
    members = Members(0)
    assert members.run(registration(1, rack="a", directories=(UUID(int=201), UUID(int=202)))) == 10
    broker = members.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.rack, broker.in_controlled_shutdown) == (10, True, "a", False)
    assert broker.addresses == {"PLAINTEXT": Address(host="h", port=9_001)}
    assert broker.directories == (UUID(int=201), UUID(int=202))
    assert members.beat(1, offset=9) == HeartbeatReply(caught_up=False, state=BrokerState.FENCED)
    assert members.records == ()
    assert members.beat(1, offset=10) == HeartbeatReply(caught_up=True, state=BrokerState.UNFENCED)
    assert members.records == (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, fenced=-1),)


def test_the_only_node_registers_itself_unfenced() -> None:
    """Nothing is checked and no partition changes: it has the whole image."""
    members = Members(1, elr=False)
    members.create("t", (1,))
    before = members.partition("t")
    members.run(registration(1, run=2, joins=False, cluster_id="", features=()))
    assert not members.image.brokers[1].fenced
    assert members.kinds == [RegisterBrokerRecord]
    assert members.partition("t") is before


def test_a_listener_keeps_its_security_protocol() -> None:
    """Kafka's brokers may have others than PLAINTEXT."""
    members = Members(0)
    members.run(registration(1, endpoints=(Endpoint(name="S", host="h", port=1, security_protocol=3),)))
    assert members.image.brokers[1].addresses == {"S": Address(host="h", port=1, security_protocol=3)}


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"cluster_id": "x"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "Expected cluster ID cluster, but got cluster ID x"),
        ({"is_zk": True}, ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers."),
        ({"directories": ()}, ErrorCode.INVALID_REGISTRATION, "No directories specified in request"),
        (
            {"directories": (UUID(int=300), UUID(int=99))},
            ErrorCode.INVALID_REGISTRATION,
            "Reserved directory ID in request",
        ),
        (
            {"directories": (UUID(int=300), UUID(int=300))},
            ErrorCode.INVALID_REGISTRATION,
            "Duplicate directory ID in request",
        ),
        (
            {"directories": (UUID(int=300), UUID(int=201))},
            ErrorCode.INVALID_REGISTRATION,
            f"Broker 1 is already registered with directory {uuid_text(UUID(int=201))}",
        ),
        (
            {"features": (("metadata.version", 7, 29),)},
            ErrorCode.UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version 30 of metadata.version. The broker wants a "
            "version between 7 and 29, inclusive.",
        ),
        ({"features": ()}, ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'"),
        (
            {"features": (("metadata.version", 7, 30), ("new.version", 1, 2))},
            ErrorCode.UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version 0 of new.version. The broker wants a "
            "version between 1 and 2, inclusive.",
        ),
        (
            {"features": (("metadata.version", 7, 30),)},
            ErrorCode.UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version 1 of eligible.leader.replicas.version. "
            "The broker wants a version between 0 and 0, inclusive.",
        ),
    ],
)
def test_a_registration_is_refused(fields: dict[str, Any], code: ErrorCode, text: str) -> None:
    """In Kafka's words; it changes nothing."""
    assert Members(1).refusal(registration(2, **fields)) == (code, text)


def test_a_second_process_is_refused_while_the_first_lives() -> None:
    """Until the first one's session is over."""
    members = Members(1)
    members.now_ms = SESSION_MS
    code, text = members.refusal(registration(1, run=2))
    assert code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert text.startswith("Another broker is registered with that broker id.")
    members.now_ms += 1
    assert members.run(registration(1, run=2)) == members.image.brokers[1].epoch


def test_a_restart_of_all_nodes_waits_for_no_session() -> None:
    """A new leader has heard no broker: those that come back register at once."""
    members = Members(1)
    members.heartbeats = BrokerHeartbeats()
    assert members.run(FenceStaleBrokers()) == ()
    members.run(registration(1, run=2))
    assert members.image.brokers[1].incarnation == UUID(int=2_001)


def test_a_repeated_registration_keeps_epoch_and_state() -> None:
    """The first response was lost; other fields are those of the repetition."""
    members = Members(1)
    epoch = members.image.brokers[1].epoch
    assert members.run(registration(1, rack="b")) == epoch
    broker = members.image.brokers[1]
    assert (broker.epoch, broker.rack, broker.fenced) == (epoch, "b", False)
    members.create("t", (1,))
    members.beat(1, want_shut_down=True)
    members.run(registration(1))
    assert members.image.brokers[1].in_controlled_shutdown


def test_a_broker_moves_its_directory_back() -> None:
    """Its own directories are never another broker's."""
    members = Members(1)
    members.now_ms = SESSION_MS + 1
    members.run(registration(1, run=2))
    assert members.image.brokers[1].directories == (UUID(int=201),)


@pytest.mark.parametrize(("clean", "elr"), [(True, (1,)), (False, ())])
def test_a_restarted_broker_leads_nothing(clean: bool, elr: tuple[int, ...]) -> None:
    """It leaves the ISRs, and after an unclean stop the eligible leader replicas: it may have lost records (KIP-966)."""
    members = Members(2)
    members.create("t", (1, 2), min_insync_replicas="2")
    epoch = members.image.brokers[1].epoch
    members.now_ms = SESSION_MS + 1
    members.run(registration(1, run=2, **{"previous_epoch": epoch} if clean else {}))
    assert members.kinds == [PartitionChangeRecord, RegisterBrokerRecord]
    partition = members.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), elr)
    broker = members.image.brokers[1]
    assert broker.fenced
    assert broker.epoch == members.offset - 2


def test_another_epoch_is_stale() -> None:
    """Each request of an earlier incarnation, and of an unknown broker."""
    members = Members(1)
    epoch = members.image.brokers[1].epoch
    assert registered(members.image, 1, epoch) is members.image.brokers[1]
    for node_id, request_epoch, text in (
        (1, epoch + 1, f"Expected broker epoch {epoch}, but got broker epoch {epoch + 1}"),
        (7, epoch, "No broker registration found for broker id 7"),
    ):
        heartbeat = BrokerHeartbeat(node_id=node_id, epoch=request_epoch, metadata_offset=0)
        assert members.refusal(heartbeat) == (ErrorCode.STALE_BROKER_EPOCH, text)


# Heartbeats and fencing


def test_stale_brokers_are_fenced_together() -> None:
    """No leadership is given to one that is stale, too; then they are fenced, and nothing more happens."""
    members = Members(3)
    members.create("t", (1, 2, 3), (2, 3, 1))
    for members.now_ms in range(0, SESSION_MS, 1_000):
        assert members.run(FenceStaleBrokers()) == ()
    members.now_ms = SESSION_MS + 1
    members.beat(3)
    assert members.run(FenceStaleBrokers()) == (1, 2)
    assert [members.partition("t", index).leader for index in (0, 1)] == [3, 3]
    assert [broker.node_id for broker in members.image.usable_brokers()] == [3]
    assert members.run(FenceStaleBrokers()) == ()
    assert members.records == ()


def test_a_fenced_broker_comes_back_by_its_heartbeat() -> None:
    """A partition that had no leader is led again, in a new epoch."""
    members = Members(1, elr=False)
    members.create("t", (1,))
    members.now_ms = SESSION_MS + 1
    members.run(FenceStaleBrokers())
    assert members.kinds == [PartitionChangeRecord, BrokerRegistrationChangeRecord]
    lost = members.partition("t")
    assert (lost.leader, lost.isr) == (NO_LEADER, (1,))
    assert members.beat(1).state is BrokerState.UNFENCED
    assert members.kinds == [BrokerRegistrationChangeRecord, PartitionChangeRecord]
    assert (members.partition("t").leader, members.partition("t").leader_epoch) == (1, lost.leader_epoch + 1)


def test_a_broker_may_be_fenced_at_its_request() -> None:
    """Once; a fenced one has nothing to change."""
    members = Members(2)
    members.create("t", (1, 2))
    for records in ([PartitionChangeRecord, BrokerRegistrationChangeRecord], []):
        assert members.beat(1, want_fence=True).state is BrokerState.FENCED
        assert members.kinds == records
    assert members.partition("t").leader == 2


def test_a_dead_broker_is_fenced_at_once() -> None:
    """Its restarted process registers without waiting for the session; an older epoch changes nothing."""
    members = Members(2)
    members.create("t", (1, 2))
    epoch = members.image.brokers[1].epoch
    assert members.run(FenceBroker(node_id=1, epoch=epoch - 1)) is False
    assert members.run(FenceBroker(node_id=7, epoch=epoch)) is False
    assert members.run(FenceBroker(node_id=1, epoch=epoch)) is True
    assert members.partition("t").leader == 2
    assert members.run(FenceBroker(node_id=1, epoch=epoch)) is False
    members.run(registration(1, run=2))
    assert members.image.brokers[1].epoch > epoch


# Controlled shutdown


def test_a_controlled_shutdown_hands_over_what_it_leads() -> None:
    """The broker may stop when the others know their leaderships; then it is fenced, and may start again at once."""
    members = Members(3)
    members.create("t", (1, 2, 3), (2, 3, 1))
    assert members.beat(1, want_shut_down=True).state is BrokerState.CONTROLLED_SHUTDOWN
    assert members.kinds == [BrokerRegistrationChangeRecord, PartitionChangeRecord, PartitionChangeRecord]
    end = members.offset - 1
    assert [(members.partition("t", index).leader, 1 in members.partition("t", index).isr) for index in (0, 1)] == [
        (2, False),
        (2, False),
    ]
    members.beat(2)
    members.beat(3, offset=end - 1)
    assert members.beat(1, want_shut_down=True).state is BrokerState.CONTROLLED_SHUTDOWN
    assert members.records == ()
    members.beat(3, offset=end)
    assert members.beat(1, want_shut_down=True).state is BrokerState.SHUTDOWN_NOW
    assert members.kinds == [BrokerRegistrationChangeRecord]
    assert members.image.brokers[1].fenced
    assert members.beat(1, want_shut_down=True).state is BrokerState.SHUTDOWN_NOW
    assert members.records == ()
    members.run(registration(1, run=2))
    assert not members.image.brokers[1].in_controlled_shutdown


def test_a_broker_without_leaderships_stops_at_once() -> None:
    """It leaves the ISRs and is fenced."""
    members = Members(2)
    members.create("t", (1, 2))
    assert members.beat(2, want_shut_down=True).state is BrokerState.SHUTDOWN_NOW
    assert members.kinds == [PartitionChangeRecord, BrokerRegistrationChangeRecord]
    assert members.partition("t").isr == (1,)


def test_the_last_replica_in_sync_may_stop() -> None:
    """Its partition has no leader then: the shutdown waits for no other replica."""
    members = Members(2, elr=False)
    members.create("t", (1,))
    members.beat(1, want_shut_down=True)
    members.beat(2)
    assert members.beat(1, want_shut_down=True).state is BrokerState.SHUTDOWN_NOW
    assert (members.partition("t").leader, members.partition("t").isr) == (NO_LEADER, (1,))


def test_a_new_leader_goes_on_with_a_controlled_shutdown() -> None:
    """Without a second record of what the image has."""
    members = Members(2)
    members.create("t", (1, 2))
    members.beat(1, want_shut_down=True)
    members.heartbeats = BrokerHeartbeats()
    assert members.beat(1, want_shut_down=True).state is BrokerState.SHUTDOWN_NOW
    members = Members(2)
    members.create("t", (1, 2))
    members.image = replace(
        members.image,
        brokers=members.image.brokers.updated({1: replace(members.image.brokers[1], in_controlled_shutdown=True)}),
    )
    assert members.beat(1, want_shut_down=True).state is BrokerState.CONTROLLED_SHUTDOWN
    assert members.kinds == [PartitionChangeRecord]


# Directories


def test_a_failed_directory_takes_its_replicas_along() -> None:
    """Those in the broker's other directories stay; a repetition changes nothing."""
    members = Members(2)
    members.now_ms = SESSION_MS + 1
    members.beat(2)
    failed, whole = UUID(int=201), UUID(int=301)
    members.run(registration(1, run=2, directories=(failed, whole)))
    members.beat(1)
    members.create("t", (1, 2), (1, 2))
    topic_id = members.image.topics["t"].topic_id
    members.apply(
        PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=[directory, UUID(int=202)])
        for index, directory in enumerate((failed, whole))
    )
    members.beat(1, offline_directories=(failed,))
    assert members.kinds == [PartitionChangeRecord, BrokerRegistrationChangeRecord]
    assert [members.partition("t", index).isr for index in (0, 1)] == [(2,), (1, 2)]
    assert members.image.brokers[1].directories == (whole,)
    members.beat(1, offline_directories=(failed, LOST))
    assert members.records == ()


def test_cordoned_directories_are_written_when_they_change() -> None:
    """From the first report on, in any order (KIP-1066)."""
    members = Members(1)
    directories = (UUID(int=1_001), UUID(int=1_002))
    for cordoned, writes in (
        (None, False),
        ((), True),
        ((), False),
        (directories, True),
        (directories[::-1], False),
        (None, False),
    ):
        members.beat(1, cordoned_directories=cordoned)
        assert bool(members.records) is writes, cordoned
    assert members.image.brokers[1].cordoned_directories == directories


# The end of a broker


def test_a_broker_is_unregistered() -> None:
    """It leaves ISRs and eligible leader replicas; it stays among the replicas, as in Kafka."""
    members = Members(3)
    members.create("t", (1, 2), min_insync_replicas="2")
    members.beat(1, want_fence=True)
    assert members.partition("t").elr == (1,)
    members.run(UnregisterBroker(node_id=1))
    assert members.kinds == [PartitionChangeRecord, UnregisterBrokerRecord]
    partition = members.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.replicas) == (2, (2,), (), (1, 2))
    assert sorted(members.image.brokers) == [2, 3]
    assert members.refusal(UnregisterBroker(node_id=1)) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Broker ID 1 is not currently registered",
    )
    members.run(registration(1, run=2))
    assert members.image.brokers[1].fenced


def test_the_only_node_cannot_be_unregistered() -> None:
    """Nothing would be left."""
    members = Members(0)
    members.run(registration(members.config.node_id))
    code, text = members.refusal(UnregisterBroker(node_id=members.config.node_id))
    assert code is ErrorCode.INVALID_REQUEST
    assert "its own controller" in text
