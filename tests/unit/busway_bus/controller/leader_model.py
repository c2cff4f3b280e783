"""Fencings, ISR changes, reports, moves and elections in random order, beside a model of replicas' logs.

Here: the model, the steps, `run`.
Not here: what the numbers of a run must be (`test_leader_rules`).
A record is committed when the whole ISR has it, and the ISR has at least the minimum: a replica that leaves the ISR
later lacks what is committed after it.
"""

import random
from dataclasses import dataclass, field

from tests.unit.busway_bus.controller.cluster import SmallCluster

from busway_bus.controller.elections import PREFERRED, UNCLEAN, BalanceLeaders, ElectLeaders, ElectMissingLeaders
from busway_bus.controller.isr_changes import AlterPartition, IsrChange
from busway_bus.controller.leaders import ReportReplicas
from busway_bus.controller.reassign import AlterPartitionReassignments, Move
from busway_bus.metadata.features import has_elr
from busway_bus.metadata.image import NO_LEADER, RECOVERED, RECOVERING, ClusterImage, PartitionImage
from busway_protocol.errors import ErrorCode, KafkaError

BROKERS = (1, 2, 3, 4)
TOPICS = {"t": ((1, 2, 3), (2, 3, 4), (4, 1, 2)), "u": ((3, 1, 4),)}
STEPS = 60
KINDS = (
    "fence",
    "unfence",
    "unfence",
    "isr",
    "isr",
    "isr",
    "isr",
    "elect",
    "balance",
    "lost",
    "restored",
    "unclean",
    "move",
)


Key = tuple[str, int]


@dataclass(slots=True)
class Model:
    """What replicas have: records are numbers, in the order in which they were written.

    Attributes:
        logs: records of each replica of each partition; an unclean shutdown may lose all of a broker's.
        committed: records of each partition that no clean election may lose.
    """

    logs: dict[Key, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    committed: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    written: int = 0
    elections: int = 0
    unclean: int = 0

    def write(self, cluster: SmallCluster) -> None:
        """Each led partition takes one record, which is committed if the ISR reaches the minimum."""
        for key, partition, min_isr in partitions(cluster):
            logs = self.logs.setdefault(key, dict.fromkeys(partition.replicas, ()))
            if partition.leader == NO_LEADER:
                continue
            self.written += 1
            logs[partition.leader] += (self.written,)
            for replica in partition.isr:
                logs[replica] = logs[partition.leader]
            if len(partition.isr) >= min_isr:
                self.committed[key] = logs[partition.leader]

    def check(self, before: ClusterImage, cluster: SmallCluster, event: "Event", *, unclean_allowed: bool) -> None:
        """The rules, after a step."""
        for key, partition, _ in partitions(cluster):
            older = before.partition(*key)
            assert older is not None
            check_shape(partition, older, cluster.image)
            if not event.unclean:
                entered = {*partition.isr} - {*older.isr, *older.elr}
                fenced = [broker for broker in entered if not cluster.image.is_active(broker)]
                assert not fenced, f"{key}: brokers {fenced} are fenced and enter the ISR"
            if partition.leader in {NO_LEADER, older.leader}:
                continue
            self.elections += 1
            log, committed = self.logs[key][partition.leader], self.committed.get(key, ())
            if partition.leader in {*older.isr, *older.elr, *(event.joined if key == event.key else ())}:
                assert log[: len(committed)] == committed, f"{key}: {partition.leader} lacks committed records"
                continue
            self.unclean += 1
            assert partition.recovery_state == RECOVERING
            assert partition.isr == (partition.leader,)
            no_other = {*older.isr, *older.elr} <= {event.gone} and older.last_known_elr == (partition.leader,)
            allowed = unclean_allowed or event.unclean
            assert allowed or no_other, f"{key}: {partition.leader} was neither in sync nor eligible"
            self.committed[key] = tuple(record for record in committed if record in log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a step was.

    Attributes:
        unclean: it asks for unclean elections.
        gone: a broker with an unclean shutdown.
        key, joined: the partition whose leader has these in sync.
    """

    unclean: bool = False
    gone: int | None = None
    key: Key | None = None
    joined: tuple[int, ...] = ()


def partitions(cluster: SmallCluster) -> list[tuple[Key, PartitionImage, int]]:
    """All partitions with their keys and minima."""
    return [
        ((topic.name, index), partition, int(cluster.image.topic_configs(topic.name)["min.insync.replicas"]))
        for topic in cluster.image.topics.values()
        for index, partition in enumerate(topic.partitions)
    ]


def check_shape(partition: PartitionImage, older: PartitionImage, image: ClusterImage) -> None:
    """A leader is in sync and alive, ISR and ELR are disjoint sets of replicas, and epochs only rise."""
    assert not set(partition.isr) & set(partition.elr)
    assert len({*partition.isr, *partition.elr}) == len(partition.isr) + len(partition.elr)
    assert {*partition.isr, *partition.elr} <= {*partition.replicas}
    assert partition.partition_epoch >= older.partition_epoch
    assert (partition.leader_epoch > older.leader_epoch) >= (partition.leader != older.leader), "epoch reused"
    assert (partition.partition_epoch > older.partition_epoch) == (partition != older)
    if partition.leader == NO_LEADER:
        return
    assert partition.leader in partition.isr
    assert not partition.lost_on(partition.leader)
    if partition.leader != older.leader:
        assert image.is_active(partition.leader), f"a fenced broker leads: {partition}"


@dataclass(frozen=True, slots=True)
class Request:
    """A leader's AlterPartition: a follower that lags leaves, or one that caught up enters.

    Attributes:
        stale: an epoch in it is outdated, so that it must be refused.
    """

    command: AlterPartition
    stale: bool


def isr_change(cluster: SmallCluster, numbers: random.Random, key: Key, partition: PartitionImage) -> Request:
    others = [replica for replica in partition.replicas if replica != partition.leader]
    chosen = tuple(sorted({partition.leader, *numbers.sample(others, numbers.randint(0, len(others)))}))
    brokers = cluster.image.brokers
    of_leader, of_sender = numbers.choice([0, 0, 0, 1]), numbers.choice([0, 0, 0, 0, 1])
    of_members = {broker: numbers.choice([0, 0, 0, 0, 0, 1]) for broker in chosen}
    command = AlterPartition(
        broker_id=partition.leader,
        broker_epoch=brokers[partition.leader].epoch - of_sender,
        changes=(
            IsrChange(
                topic_id=cluster.image.topics[key[0]].topic_id,
                partition_index=key[1],
                leader_epoch=partition.leader_epoch - of_leader,
                partition_epoch=partition.partition_epoch,
                isr=tuple((broker, brokers[broker].epoch - of_members[broker]) for broker in chosen),
                recovery_state=RECOVERED,
            ),
        ),
    )
    return Request(command, stale=bool(of_leader or of_sender or any(of_members.values())))


def step(cluster: SmallCluster, model: Model, numbers: random.Random) -> Event:
    """One event."""
    kind = numbers.choice(KINDS)
    broker = numbers.choice(BROKERS)
    if kind == "fence":
        cluster.fence(broker)
    elif kind == "unclean":
        cluster.fence(broker, unclean=True)
        for logs in model.logs.values():
            if broker in logs and has_elr(cluster.image.features):  # without, a log is taken at its word
                logs[broker] = numbers.choice([(), logs[broker]])
        return Event(gone=broker)
    elif kind == "unfence":
        cluster.unfence(broker)
    elif kind == "isr":
        led = [row for row in partitions(cluster) if row[1].leader != NO_LEADER]
        for key, partition, _ in numbers.sample(led, min(len(led), 1)):
            request = isr_change(cluster, numbers, key, partition)
            command = request.command
            try:
                (reply,) = cluster.run(command)
            except KafkaError as refusal:
                if refusal.code is not ErrorCode.STALE_BROKER_EPOCH:
                    raise
                continue
            assert not (request.stale and isinstance(reply, PartitionImage)), f"stale request served: {command}"
            if isinstance(reply, PartitionImage) or reply.code is ErrorCode.NEW_LEADER_ELECTED:
                joined = tuple(command.changes[0].brokers)
                for replica in joined:  # who enters has fetched everything
                    model.logs[key][replica] = model.logs[key][partition.leader]
                return Event(key=key, joined=joined)
    elif kind == "elect":
        election = numbers.choice([PREFERRED, PREFERRED, UNCLEAN])
        cluster.run(ElectLeaders(kind=election, partitions=None))
        return Event(unclean=election == UNCLEAN)
    elif kind == "move":
        key, partition, _ = numbers.choice(partitions(cluster))
        replicas = numbers.choice([None, tuple(numbers.sample(BROKERS, numbers.randint(1, 3)))])
        cluster.run(AlterPartitionReassignments(moves=(Move(topic=key[0], partition=key[1], replicas=replicas),)))
        moved, logs = cluster.partition(*key), model.logs[key]
        for replica in moved.replicas:
            logs.setdefault(replica, ())
        if not {*moved.isr} <= {*partition.isr}:  # a cancelled move whose old replicas are out of sync: an unclean one
            committed = model.committed.get(key, ())
            model.committed[key] = tuple(record for record in committed if record in logs[moved.isr[0]])
            return Event(unclean=True, key=key, joined=moved.isr)
    elif kind == "balance":
        cluster.run(numbers.choice([BalanceLeaders(), ElectMissingLeaders()]))
    else:
        keys = tuple(key for key, partition, _ in partitions(cluster) if numbers.random() < 0.3)
        cluster.run(ReportReplicas(node_id=broker, **{kind: keys}))
    return Event()


def play(numbers: random.Random, *, elr: bool, unclean: bool) -> Model:
    """One cluster. AssertionError: a rule is broken."""
    cluster, model = SmallCluster(4, elr=elr), Model()
    for name, replicas in TOPICS.items():
        cluster.create(
            name,
            *replicas,
            min_insync_replicas=str(numbers.choice([1, 2, 2])),
            unclean_leader_election_enable=str(unclean).lower(),
        )
    for _ in range(STEPS):
        model.write(cluster)
        before = cluster.image
        event = step(cluster, model, numbers)
        model.check(before, cluster, event, unclean_allowed=unclean)
    return model


def run(seed: int, about: str = "") -> Model:
    """One seed; `about` is `elr` for clusters with eligible leader replicas."""
    numbers = random.Random(seed)
    return play(numbers, elr=about == "elr" or numbers.random() < 0.5, unclean=False)
