"""Bugs put into the controller on purpose: registrations, heartbeats, elections, ISR changes.

Here: each as a change of a named function.
Not here: the engine and the bound of each (`planted_cluster`), how they are put in (`planting`).
"""

from typing import Any, Final

from tests.simulation.planting import Planted

_ISRS, _TARGET = "busway_bus.controller.isr_changes", "busway_bus.controller.partition_changes:_Target"
_LEADERS = "busway_bus.controller.leaders"


def _any_epochs(_: Any) -> Any:
    return lambda change, partition, broker_id: None


def _any_broker_epoch(_: Any) -> Any:
    return lambda image, node_id, epoch: image.brokers[node_id]


def _fenced_is_eligible(original: Any) -> Any:
    return lambda image, broker_id, epoch: (
        ""
        if (broker := image.brokers[broker_id]).fenced and broker.epoch == epoch
        else original(image, broker_id, epoch)
    )


def _any_member_epoch(original: Any) -> Any:
    return lambda image, broker_id, epoch: original(image, broker_id, -1)


def _stays_in_sync(_: Any) -> Any:
    return lambda image, broker_id, *, config, unclean=False, limited=False: []


def _always_unclean(_: Any) -> Any:
    return lambda self, topic: True


def _no_eligible(_: Any) -> Any:
    def derive_elr(self: Any) -> None:
        self.elr = ()

    return derive_elr


def _eligible_for_ever(_: Any) -> Any:
    def derive_elr(self: Any) -> None:
        if self.change.elr_enabled:
            left = {*self.elr, *self.before.isr} - {*self.isr, *self.change.unclean_shutdown}
            self.elr = tuple(sorted(left.intersection(self.replicas)))

    return derive_elr


def _clean_for_ever(original: Any) -> Any:
    return lambda image, broker_id, *, config, unclean=False, limited=False: original(
        image, broker_id, config=config, unclean=False, limited=limited
    )


def _same_epoch(original: Any) -> Any:
    def after(partition: Any, record: Any) -> Any:
        from dataclasses import replace

        return replace(original(partition, record), leader_epoch=partition.leader_epoch)

    return after


def _fenced_leads(original: Any) -> Any:
    def acceptable(self: Any, partition: Any, directories: Any) -> Any:
        from busway_bus.controller.leaders import is_online

        may_lead = original(self, partition, directories)

        def accept(broker_id: int) -> bool:
            directory = directories.get(broker_id) or partition.directory_on(broker_id)
            fenced = self._image.brokers[broker_id].fenced and is_online(self._image, broker_id, directory)
            return bool(may_lead(broker_id) or fenced)

        return accept

    return acceptable


def _any_incarnation(original: Any) -> Any:
    def decide(self: Any, image: Any, surroundings: Any) -> Any:
        from dataclasses import replace

        before = image.brokers.get(self.node_id)
        known = self if before is None else replace(self, incarnation=before.incarnation)
        return original(known, image, surroundings)

    return decide


def _no_session(_: Any) -> Any:
    return lambda self, broker, now_ms, timeout_ms: False


PLANTED: Final = (
    Planted(
        "heartbeat with an old broker epoch accepted",
        "a replaced process unfences its successor, and keeps the session of one that is gone",
        (("busway_bus.controller.brokers:registered", _any_broker_epoch),),
    ),
    Planted(
        "registration with an old incarnation accepted",
        "another process of a broker gets the epoch of the one that is registered",
        (("busway_bus.controller.brokers:RegisterBroker.decide", _any_incarnation),),
    ),
    Planted(
        "registration accepted beside a live process",
        "a second process with a broker's id takes its place while the first one sends heartbeats",
        (("busway_bus.controller.heartbeats:BrokerHeartbeats.has_session", _no_session),),
    ),
    Planted(
        "stale leader epoch accepted in AlterPartition",
        "the controller changes an ISR for a leader that has not seen the partition's last change",
        ((f"{_ISRS}:_check_epochs", _any_epochs),),
    ),
    Planted(
        "stale broker epoch accepted in AlterPartition",
        "the controller changes ISRs for a process that has been replaced",
        ((f"{_ISRS}:registered", _any_broker_epoch),),
    ),
    Planted(
        "fenced broker enters an ISR",
        "the controller does not look whether a new in-sync replica is fenced",
        ((f"{_ISRS}:_ineligible", _fenced_is_eligible),),
    ),
    Planted(
        "restarted broker enters an ISR",
        "the controller ignores the epochs of brokers in a new ISR",
        ((f"{_ISRS}:_ineligible", _any_member_epoch),),
    ),
    Planted(
        "fenced broker stays in the ISR",
        "a broker that is fenced keeps its leaderships and stays in sync",
        ((f"{_LEADERS}:without_broker", _stays_in_sync),),
        "elections",
    ),
    Planted(
        "unclean election although off",
        "a replica that was neither in sync nor eligible is elected without unclean.leader.election.enable",
        (("busway_bus.controller.topic_settings:TopicSettings.unclean_elections", _always_unclean),),
    ),
    Planted(
        "eligible leader replicas not kept",
        "a replica that leaves an ISR below its minimum is forgotten (KIP-966)",
        ((f"{_TARGET}.derive_elr", _no_eligible),),
        "elr",
    ),
    Planted(
        "eligible leader replicas kept above the minimum",
        "a replica stays eligible although the ISR commits records without it",
        ((f"{_TARGET}.derive_elr", _eligible_for_ever),),
        "elr",
    ),
    Planted(
        "eligible after an unclean shutdown",
        "a broker that may have lost committed records stays in sync or eligible",
        ((f"{_LEADERS}:without_broker", _clean_for_ever),),
        "losses",
    ),
    Planted(
        "leader epoch not raised by an election",
        "the next leader has its predecessor's epoch",
        (("busway_bus.metadata.delta:merged", _same_epoch),),
        "elr",
    ),
    Planted(
        "fenced broker elected",
        "a leader is elected whose broker is fenced",
        ((f"{_LEADERS}:PartitionChanges._acceptable", _fenced_leads),),
        "elr",
    ),
)
