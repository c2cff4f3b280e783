"""Who waits for an offset is answered when it counts, in order, once."""

from functools import partial

from busway_bus.metadata.image import PartitionImage
from busway_bus.replication.acknowledgements import Acknowledgements
from busway_bus.replication.partition_state import ACKS_ALL, ACKS_LEADER, PartitionState
from busway_protocol.errors import ErrorCode, KafkaError


def leader(high_watermark: int, flushed: int, end: int) -> PartitionState:
    """A leader of two replicas, of which the other one has what is committed."""
    state = PartitionState(node_id=1, log_end_offset=end, flushed_offset=flushed, high_watermark=high_watermark)
    record = PartitionImage(leader=1, leader_epoch=0, partition_epoch=0, replicas=(1, 2), isr=(1, 2))
    state.registered(record, now_ms=0)
    return state


def waiting(*places: tuple[str, int, int]) -> tuple[Acknowledgements, list[tuple[str, KafkaError | None]]]:
    """Producers (name, last offset, acks), and their answers."""
    acknowledgements, answers = Acknowledgements(), []
    for name, last_offset, acks in places:
        acknowledgements.add(last_offset, acks, partial(lambda name, problem: answers.append((name, problem)), name))
    return acknowledgements, answers


def test_each_waits_for_its_own_offset():
    """acks=all for the high watermark, acks=1 for what is flushed here."""
    acknowledgements, answers = waiting(
        ("a", 0, ACKS_ALL), ("b", 1, ACKS_LEADER), ("c", 2, ACKS_ALL), ("d", 3, ACKS_LEADER)
    )
    acknowledgements.complete(leader(high_watermark=2, flushed=3, end=4))
    assert answers == [("a", None), ("b", None)]
    acknowledgements.complete(leader(high_watermark=3, flushed=4, end=4))
    assert answers[2:] == [("c", None), ("d", None)]
    assert len(acknowledgements) == 0


def test_a_duplicate_of_an_earlier_batch_does_not_wait_for_later_ones():
    """It is in the list by its offset, not by when it came."""
    acknowledgements, answers = waiting(("late", 9, ACKS_ALL), ("duplicate", 4, ACKS_ALL), ("later", 12, ACKS_ALL))
    acknowledgements.complete(leader(high_watermark=5, flushed=5, end=13))
    assert answers == [("duplicate", None)]
    acknowledgements.complete(leader(high_watermark=13, flushed=13, end=13))
    assert [name for name, _ in answers] == ["duplicate", "late", "later"]


def test_a_failed_disk_answers_all():
    """No producer is left waiting for a node that acknowledges nothing any more."""
    acknowledgements, answers = waiting(("a", 0, ACKS_ALL), ("b", 0, ACKS_LEADER))
    problem = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    acknowledgements.fail(problem)
    assert answers == [("a", problem), ("b", problem)]
    acknowledgements.complete(leader(high_watermark=9, flushed=9, end=9))
    assert len(answers) == 2
