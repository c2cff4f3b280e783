"""Sessions of brokers and their next states, rule by rule of Kafka's BrokerHeartbeatManager."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from busway_bus.controller.heartbeats import BrokerHeartbeats, BrokerState, check_interval_ms
from busway_bus.metadata.image import BrokerImage, ClusterImage
from busway_bus.metadata.sorted_map import SortedMap

TIMEOUT_MS = 10
FENCED, UNFENCED = BrokerState.FENCED, BrokerState.UNFENCED
CONTROLLED_SHUTDOWN, SHUTDOWN_NOW = BrokerState.CONTROLLED_SHUTDOWN, BrokerState.SHUTDOWN_NOW


def broker(node_id: int, *, fenced: bool = False, stops: bool = False, epoch: int = 100) -> BrokerImage:
    return BrokerImage(
        node_id=node_id,
        epoch=epoch,
        incarnation=UUID(int=epoch),
        addresses={},
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=stops,
        directories=(),
        features={},
    )


def image_of(*brokers: BrokerImage) -> ClusterImage:
    return ClusterImage(brokers=SortedMap({broker.node_id: broker for broker in brokers}))


def sessions(heartbeats: BrokerHeartbeats, brokers: tuple[BrokerImage, ...], now_ms: int) -> list[bool]:
    return [heartbeats.has_session(broker, now_ms, TIMEOUT_MS) for broker in brokers]


def test_a_session_lasts_from_each_heartbeat() -> None:
    """To its last millisecond; an unknown broker has none."""
    heartbeats, brokers = BrokerHeartbeats(), (broker(0), broker(1), broker(2))
    heartbeats.received(brokers[0], 0, 0)
    heartbeats.received(brokers[1], 5, 0)
    assert sessions(heartbeats, brokers, 10) == [True, True, False]
    assert sessions(heartbeats, brokers, 11) == [False, True, False]
    heartbeats.received(brokers[0], 11, 0)
    assert sessions(heartbeats, brokers, 16) == [True, False, False]


def test_a_session_is_of_one_epoch() -> None:
    """Another incarnation has none before its own first heartbeat."""
    heartbeats = BrokerHeartbeats()
    heartbeats.received(broker(1), 0, 0)
    assert not heartbeats.has_session(broker(1, epoch=200), 1, TIMEOUT_MS)


def test_a_session_is_ended() -> None:
    """At once; the next heartbeat begins another one."""
    heartbeats = BrokerHeartbeats()
    heartbeats.end_session(1)
    heartbeats.received(broker(1), 0, 0)
    heartbeats.end_session(1)
    assert not heartbeats.has_session(broker(1), 0, TIMEOUT_MS)
    assert heartbeats.stale(image_of(broker(1)), 0, TIMEOUT_MS) == [1]
    heartbeats.received(broker(1), 1, 0)
    assert heartbeats.has_session(broker(1), 1, TIMEOUT_MS)


def test_stale_brokers_are_the_longest_silent_first() -> None:
    """Only unfenced ones; a fenced broker has nothing to lose."""
    heartbeats = BrokerHeartbeats()
    brokers = tuple(broker(node_id) for node_id in range(4))
    for now_ms, silent in ((0, brokers[2]), (1, brokers[0]), (2, brokers[3])):
        heartbeats.received(silent, now_ms, 0)
    heartbeats.received(brokers[1], 6, 0)
    image = image_of(*brokers[:3], replace(brokers[3], fenced=True))
    for now_ms, stale in ((8, []), (11, [2]), (12, [2, 0]), (16, [2, 0]), (17, [2, 0, 1])):
        assert heartbeats.stale(image, now_ms, TIMEOUT_MS) == stale, now_ms


def test_a_new_leader_gives_each_broker_a_session() -> None:
    """From its first check on; what an earlier leadership of the same node knew is forgotten."""
    heartbeats, image = BrokerHeartbeats(), image_of(broker(1))
    heartbeats.begin(3)
    heartbeats.received(broker(1), 0, 0)
    heartbeats.begin(3)
    assert heartbeats.stale(image, 11, TIMEOUT_MS) == [1]
    heartbeats.begin(5)
    assert heartbeats.stale(image, 50, TIMEOUT_MS) == []
    assert not heartbeats.has_session(broker(1), 50, TIMEOUT_MS)  # a restarted broker need not wait for its end
    assert heartbeats.stale(image, 55, TIMEOUT_MS) == []
    assert heartbeats.stale(image, 60, TIMEOUT_MS) == []
    assert heartbeats.stale(image, 61, TIMEOUT_MS) == [1]


def test_a_pause_of_the_controller_fences_no_broker() -> None:
    """It read no heartbeats either; a broker that stays silent is stale a session later at most."""
    heartbeats, image = BrokerHeartbeats(), image_of(broker(1))
    heartbeats.received(broker(1), 0, 0)
    assert heartbeats.stale(image, 4, TIMEOUT_MS) == []
    assert heartbeats.stale(image, 1_000, TIMEOUT_MS) == []
    assert heartbeats.stale(image, 1_004, TIMEOUT_MS) == []
    assert heartbeats.stale(image, 1_008, TIMEOUT_MS) == [1]


def test_unregistered_brokers_are_forgotten() -> None:
    """Nothing of them is left to be stale."""
    heartbeats = BrokerHeartbeats()
    heartbeats.received(broker(1), 0, 0)
    assert heartbeats.stale(image_of(), 100, TIMEOUT_MS) == []
    assert not heartbeats.has_session(broker(1), 0, TIMEOUT_MS)


@pytest.mark.parametrize(("timeout_ms", "interval_ms"), [(9_000, 1_125), (1, 1)])
def test_checks_are_an_eighth_of_a_session_apart(timeout_ms: int, interval_ms: int) -> None:
    """As in Kafka's QuorumController."""
    assert check_interval_ms(timeout_ms) == interval_ms


def next_state(
    subject: BrokerImage,
    *others: BrokerImage,
    offset: int = 0,
    fence: bool = False,
    shut_down: bool = False,
    leads: bool = False,
    heartbeats: BrokerHeartbeats | None = None,
) -> BrokerState:
    return (heartbeats or BrokerHeartbeats()).next_state(
        image_of(subject, *others),
        subject,
        metadata_offset=offset,
        want_fence=fence,
        want_shut_down=shut_down,
        leads=lambda: leads,
    )


@pytest.mark.parametrize(
    ("request_fields", "expected"),
    [
        ({"shut_down": True}, SHUTDOWN_NOW),
        ({"shut_down": True, "leads": True, "fence": True}, SHUTDOWN_NOW),
        ({"offset": 100}, UNFENCED),
        ({"offset": 101}, UNFENCED),
        ({"offset": 99}, FENCED),
        ({"offset": 100, "fence": True}, FENCED),
    ],
)
def test_a_fenced_broker(request_fields: dict[str, Any], expected: BrokerState) -> None:
    """It is unfenced once it has applied its registration, and may stop at any time."""
    assert next_state(broker(1, fenced=True, epoch=100), **request_fields) is expected


@pytest.mark.parametrize(
    ("request_fields", "expected"),
    [
        ({}, UNFENCED),
        ({"leads": True}, UNFENCED),
        ({"fence": True}, FENCED),
        ({"fence": True, "shut_down": True, "leads": True}, SHUTDOWN_NOW),
        ({"shut_down": True, "leads": True}, CONTROLLED_SHUTDOWN),
        ({"shut_down": True}, SHUTDOWN_NOW),
    ],
)
def test_an_unfenced_broker(request_fields: dict[str, Any], expected: BrokerState) -> None:
    """It stops at once if it leads no partition."""
    assert next_state(broker(1), **request_fields) is expected


@pytest.mark.parametrize(
    ("other_offset", "leads", "expected"),
    [
        (98, False, CONTROLLED_SHUTDOWN),
        (99, False, SHUTDOWN_NOW),
        (100, False, SHUTDOWN_NOW),
        (100, True, CONTROLLED_SHUTDOWN),
    ],
)
def test_a_broker_in_controlled_shutdown(other_offset: int, leads: bool, expected: BrokerState) -> None:
    """It waits until its leaderships are handed over and every active broker knows that."""
    heartbeats, stopping, other = BrokerHeartbeats(), broker(5, stops=True), broker(1)
    heartbeats.received(stopping, 0, 50)
    heartbeats.shuts_down(stopping, 99)
    heartbeats.received(other, 0, other_offset)
    assert next_state(stopping, other, broker(2, fenced=True), leads=leads, heartbeats=heartbeats) is expected


def test_brokers_that_all_shut_down_do_not_wait_for_each_other() -> None:
    """Only active ones count."""
    heartbeats, stopping = BrokerHeartbeats(), (broker(1, stops=True), broker(2, stops=True))
    for each in stopping:
        heartbeats.received(each, 0, 50)
        heartbeats.shuts_down(each, 99)
    assert next_state(*stopping, heartbeats=heartbeats) is SHUTDOWN_NOW


def test_an_active_broker_that_reported_no_offset_is_waited_for() -> None:
    """A new leader of the quorum has not heard of it yet."""
    heartbeats, stopping = BrokerHeartbeats(), broker(5, stops=True)
    heartbeats.received(stopping, 0, 50)
    heartbeats.shuts_down(stopping, 0)
    assert next_state(stopping, broker(1), heartbeats=heartbeats) is CONTROLLED_SHUTDOWN


def test_a_shutdown_whose_record_is_lost_begins_again() -> None:
    """The image counts: the broker is not in controlled shutdown there."""
    heartbeats = BrokerHeartbeats()
    heartbeats.received(broker(5), 0, 50)
    heartbeats.shuts_down(broker(5), 99)
    assert next_state(broker(5), shut_down=True, leads=True, heartbeats=heartbeats) is CONTROLLED_SHUTDOWN
    assert heartbeats.state(broker(5)) is UNFENCED


def test_a_new_leader_lets_a_controlled_shutdown_begin_again() -> None:
    """It does not know the offset; the broker has the state in the image."""
    assert next_state(broker(5, stops=True), shut_down=True, leads=True) is CONTROLLED_SHUTDOWN
    assert next_state(broker(5, stops=True), shut_down=True) is SHUTDOWN_NOW


def test_a_fenced_broker_leaves_its_controlled_shutdown() -> None:
    """As in Kafka; if it is unfenced again it may shut down again."""
    heartbeats, stopping = BrokerHeartbeats(), broker(5, stops=True)
    heartbeats.received(stopping, 0, 50)
    heartbeats.shuts_down(stopping, 99)
    assert heartbeats.state(stopping) is CONTROLLED_SHUTDOWN
    fenced = replace(stopping, fenced=True)
    assert heartbeats.state(fenced) is FENCED
    heartbeats.received(fenced, 1, 60)
    assert heartbeats.state(stopping) is UNFENCED
