"""What is wrong with how records of a share group were handed out.

Here: one function for each anomaly.
Not here: the operations (`operations`), what holds for readers of other groups (`checks`).

A record may come again, also to another member, until a member learned that it is acknowledged; a member that is killed has perhaps
acknowledged what it never got an answer for.
"""

from collections.abc import Iterator
from typing import Final

from tests.simulation.checks import Anomaly, Check, Rules
from tests.simulation.history import History, Partition, Send, shown
from tests.support.judging.operations import Acknowledged, Handed, QueueDone

_Place = tuple[str, Partition, int]


def _acknowledged(history: History) -> dict[_Place, Acknowledged]:
    """Group, partition and offset → the member that first learned of its acknowledgement."""
    acknowledgements: dict[_Place, Acknowledged] = {}
    for acknowledged in history.of(Acknowledged):
        if acknowledged.ok:
            for offset in acknowledged.places:
                acknowledgements.setdefault((acknowledged.group, acknowledged.partition, offset), acknowledged)
    return acknowledgements


def handed_out_again(history: History, _: Rules) -> Iterator[Anomaly]:
    """A record comes after a member learned that it is acknowledged."""
    over = _acknowledged(history)
    for handed in history.of(Handed):
        for record in handed.records:
            earlier = over.get((handed.group, record.partition, record.offset))
            if earlier is not None and earlier.returned is not None and earlier.returned < handed.invoked:
                where = f"{record.offset} of {record.partition}"
                yield Anomaly(
                    "handed out again", f"{handed.process} is given {where}, which {earlier.process} was done with"
                )


def acknowledged_twice(history: History, _: Rules) -> Iterator[Anomaly]:
    """Two members learn that they have acknowledged one record."""
    first = _acknowledged(history)
    for acknowledged in history.of(Acknowledged):
        for offset in acknowledged.places if acknowledged.ok else ():
            before = first[acknowledged.group, acknowledged.partition, offset]
            if before is not acknowledged:
                who = f"{before.process} and {acknowledged.process}"
                yield Anomaly(
                    "acknowledged twice", f"{who} have both acknowledged {offset} of {acknowledged.partition}"
                )


def handed_out_wrong(history: History, _: Rules) -> Iterator[Anomaly]:
    """A member is given another value than was acknowledged to who wrote it."""
    sent = {
        (send.partition, send.offset): send.value for send in history.of(Send) if send.ok and send.offset is not None
    }
    for handed in history.of(Handed):
        for record in handed.records:
            wanted = sent.get((record.partition, record.offset), record.value)
            if wanted != record.value:
                text = (
                    f"{shown(record.value)} at {record.offset} of {record.partition}, where {shown(wanted)} was written"
                )
                yield Anomaly("handed out wrong", f"{handed.process} is given {text}")


def left_in_the_queue(history: History, _: Rules) -> Iterator[Anomaly]:
    """A group is said to be done with a topic, and a record of it was never handed out."""
    for done in history.of(QueueDone):
        handed = {
            (record.partition, record.value)
            for each in history.of(Handed)
            if each.group == done.group
            for record in each.records
        }
        for send in history.of(Send):
            if send.ok and send.partition.topic == done.topic and (send.partition, send.value) not in handed:
                yield Anomaly(
                    "left in the queue", f"{done.group} was never given {shown(send.value)} of {send.partition}"
                )


QUEUE_CHECKS: Final[tuple[Check, ...]] = (
    handed_out_again,
    acknowledged_twice,
    handed_out_wrong,
    left_in_the_queue,
)
