"""Registrations of brokers in the image: changed, fenced, removed; a record of another epoch breaks the history."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from busway_bus.metadata.delta import BrokenHistory, Delta
from busway_bus.metadata.image import BrokerImage, ClusterImage
from busway_bus.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

DIRECTORIES = (UUID(int=100), UUID(int=101))
REGISTRATION = RegisterBrokerRecord(
    broker_id=1,
    incarnation_id=UUID(int=5),
    broker_epoch=9,
    end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
    features=[],
    rack="r",
    log_dirs=list(DIRECTORIES),
)


def after(image: ClusterImage, *records: Any) -> tuple[ClusterImage, Delta]:
    """Apply records."""
    delta = Delta(image)
    for record in records:
        delta.apply(record)
    return delta.image(), delta


BEFORE = after(ClusterImage(), REGISTRATION)[0]
BROKER: BrokerImage = BEFORE.brokers[1]


def change(**fields: Any) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, **fields)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (FenceBrokerRecord(id=1, epoch=9), {}),
        (UnfenceBrokerRecord(id=1, epoch=9), {"fenced": False}),
        (change(fenced=-1), {"fenced": False}),
        (change(fenced=1), {}),
        (change(in_controlled_shutdown=1), {"in_controlled_shutdown": True}),
        (change(log_dirs=[DIRECTORIES[1]]), {"directories": DIRECTORIES[1:]}),
        (change(cordoned_log_dirs=[DIRECTORIES[0]]), {"cordoned_directories": DIRECTORIES[:1]}),
        (change(cordoned_log_dirs=[]), {"cordoned_directories": ()}),
        (change(), {}),
    ],
)
def test_a_registration_changes(record: Any, expected: dict[str, Any]) -> None:
    """Only the fields that the record has; subscribers are notified."""
    image, delta = after(BEFORE, record)
    assert image.brokers[1] == replace(BROKER, **expected)
    assert delta.registered == {1}
    assert not delta.quiet


def test_a_fenced_broker_stays_in_controlled_shutdown() -> None:
    """As in Kafka's BrokerRegistration; only a new registration ends it."""
    image, _ = after(BEFORE, change(fenced=-1), change(in_controlled_shutdown=1), change(fenced=1))
    assert image.brokers[1].in_controlled_shutdown
    assert image.brokers[1].fenced
    assert not after(image, REGISTRATION)[0].brokers[1].in_controlled_shutdown


def test_who_is_active() -> None:
    """A broker that is registered, unfenced and does not stop."""
    assert not BEFORE.is_active(1)
    unfenced, _ = after(BEFORE, change(fenced=-1))
    assert unfenced.is_active(1)
    assert not after(unfenced, change(in_controlled_shutdown=1))[0].is_active(1)
    assert not unfenced.is_active(2)


def test_a_broker_is_unregistered_and_registers_again() -> None:
    """The delta names it as removed, unless it is there in the end."""
    image, delta = after(BEFORE, UnregisterBrokerRecord(broker_id=1, broker_epoch=9))
    assert not image.brokers
    assert (delta.registered, delta.unregistered, delta.quiet) == (set(), {1}, False)
    image, delta = after(BEFORE, UnregisterBrokerRecord(broker_id=1, broker_epoch=9), REGISTRATION)
    assert image == BEFORE
    assert (delta.registered, delta.unregistered) == ({1}, set())


@pytest.mark.parametrize(
    "record",
    [
        FenceBrokerRecord(id=1, epoch=8),
        UnfenceBrokerRecord(id=2, epoch=9),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=10),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=9),
        change(fenced=2),
        change(in_controlled_shutdown=-1),
    ],
)
def test_what_cannot_follow_is_refused(record: Any) -> None:
    """Another epoch, an unknown broker, an unknown state."""
    with pytest.raises(BrokenHistory):
        Delta(BEFORE).apply(record)
