"""Changes of partitions are those of Kafka's PartitionChangeBuilder: the same record for any partition and target."""

import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from tests.conformance.java_program import command_of
from tests.support.seeds import seed
from tools.jars import kafka_libs

from busway_bus.controller.partition_changes import Election, PartitionChange
from busway_bus.metadata.image import NO_LEADER, PartitionImage
from busway_bus.metadata.records import PartitionChangeRecord

SOURCE = Path(__file__).parent / "java" / "PartitionChanges.java"
CASES = 20_000
Brokers = tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A partition, the brokers that are alive, and a target."""

    partition: PartitionImage
    live: tuple[int, ...]
    min_isr: int
    elr: bool
    election: Election
    isr: Brokers
    replicas: Brokers
    removing: Brokers
    adding: Brokers
    recovery: int | None
    unclean: Brokers
    moved: int | None

    def line(self) -> str:
        """The case for Java."""
        partition = self.partition
        return ";".join(
            [
                *map(
                    text,
                    (
                        partition.replicas,
                        partition.isr,
                        partition.elr,
                        partition.last_known_elr,
                        partition.removing,
                        partition.adding,
                    ),
                ),
                str(partition.leader),
                str(partition.recovery_state),
                text(self.live),
                str(self.min_isr),
                str(self.elr).lower(),
                self.election.name,
                *map(text, (self.isr, self.replicas, self.removing, self.adding)),
                "-" if self.recovery is None else str(self.recovery),
                text(self.unclean),
                "-" if self.moved is None else str(self.moved),
            ]
        )

    def ours(self) -> str:
        """Our record, as Java writes its own."""
        return answer(
            PartitionChange(
                topic_id=UUID(int=7),
                partition_index=0,
                partition=self.partition,
                acceptable=lambda replica: replica in self.live,
                min_isr=self.min_isr,
                elr_enabled=self.elr,
                election=self.election,
                isr=self.isr,
                replicas=self.replicas,
                removing=self.removing,
                adding=self.adding,
                recovery_state=self.recovery,
                unclean_shutdown=self.unclean or (),
                directories={} if self.moved is None else {self.moved: UUID(int=self.moved + 2000)},
                default_directory=lambda broker: UUID(int=broker + 1000),
            ).record()
        )


def text(brokers: Sequence[int] | None) -> str:
    """A list of brokers; - for none."""
    return "-" if brokers is None else ",".join(map(str, brokers))


def answer(record: PartitionChangeRecord | None) -> str:
    """A record as a line."""
    if record is None:
        return "none"
    directories = None if record.directories is None else [directory.int for directory in record.directories]
    return ";".join(
        [
            text(record.isr),
            text(record.eligible_leader_replicas),
            text(record.last_known_elr),
            str(record.leader),
            str(record.leader_recovery_state),
            text(record.replicas),
            text(record.removing_replicas),
            text(record.adding_replicas),
            text(directories),
        ]
    )


def draw(numbers: random.Random) -> Case:
    """A partition as it may be in a log, or nearly, and a target that is often none."""

    def some_of(brokers: Sequence[int]) -> tuple[int, ...]:
        return tuple(numbers.sample(list(brokers), numbers.randint(0, len(brokers))))

    def maybe(brokers: tuple[int, ...]) -> Brokers:
        return brokers if numbers.random() < 0.3 else None

    brokers = range(1, 7)
    replicas = tuple(numbers.sample(brokers, numbers.randint(1, 4)))
    isr = some_of(replicas)
    leader = numbers.choice([*(isr or (NO_LEADER,)), NO_LEADER, replicas[-1]])
    moving = numbers.random() < 0.2
    removing = some_of(replicas) if moving else ()
    partition = PartitionImage(
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
        replicas=replicas,
        isr=isr,
        directories=tuple(UUID(int=broker + 1000) for broker in replicas),
        removing=removing,
        adding=some_of([broker for broker in replicas if broker not in removing]) if moving else (),
        recovery_state=numbers.choice([0, 0, 1]),
        elr=tuple(sorted(some_of([broker for broker in replicas if broker not in isr]))),
        last_known_elr=numbers.choice([(), (), (numbers.choice(replicas),), tuple(replicas[:2])]),
    )
    gone = numbers.choice([(), some_of(isr)])
    return Case(
        partition=partition,
        live=some_of(brokers),
        min_isr=numbers.randint(1, 3),
        elr=numbers.random() < 0.7,
        election=numbers.choice(list(Election)),
        isr=numbers.choice([None, tuple(broker for broker in isr if broker not in gone), some_of(replicas)]),
        replicas=maybe(tuple(numbers.sample(brokers, numbers.randint(1, 4)))),
        removing=maybe(some_of(replicas)),
        adding=maybe(some_of(replicas)),
        recovery=numbers.choice([None, None, 0, 1]),
        unclean=maybe(gone),
        moved=numbers.choice([None, None, *replicas]),
    )


@pytest.mark.java
@pytest.mark.slow
def test_every_record_is_kafkas() -> None:
    """But for the last leader of a partition that had none when it lost a replica: Kafka notes -1."""
    numbers = random.Random(seed(966))
    cases = [draw(numbers) for _ in range(CASES)]
    done = subprocess.run(
        command_of(SOURCE, kafka_libs()),
        input="\n".join(case.line() for case in cases),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(cases)
    different, kinds = [], set()
    for case, line in zip(cases, lines, strict=True):
        fields = line.split(";")
        if case.partition.leader == NO_LEADER and fields[2:3] == ["-1"]:
            fields[2] = "-"
        kinds.add(tuple(field in {"-", "-2", "-1"} for field in fields))
        if case.ours() != ";".join(fields):
            different.append((case.line(), line, case.ours()))
    assert not different, f"{len(different)} of {CASES}: {different[:3]}"
    assert len(kinds) > 100
