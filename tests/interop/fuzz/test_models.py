"""The models of the fuzzers find the mistakes that they are there for.

Here: answers and ends made by hand.
Not here: brokers.
"""

from typing import Any

import pytest

from busway_protocol.messages.groups_classic import (
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from busway_protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from busway_protocol.messages.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from busway_protocol.records.builder import BatchBuilder
from tests.interop.fuzz.ending import MARKER, Ending
from tests.interop.fuzz.group_model import GroupModel
from tests.interop.fuzz.transaction_model import TransactionModel

NEWEST = 12


def began() -> TransactionModel:
    """Producer 5 with epoch 0, and one record of it at offset 0."""
    model = TransactionModel(("t", None))
    begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1)
    model.saw(begin, 5, InitProducerIdResponse(error_code=0, producer_id=5, producer_epoch=0))
    model.saw(*write(base_offset=0))
    return model


def write(base_offset: int, error: int = 0) -> tuple[Any, int, Any]:
    """A record of producer 5, and its answer."""
    builder = BatchBuilder(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(1, None, b"value")
    data = PartitionProduceData(index=0, records=builder.build())
    request = ProduceRequest(
        transactional_id="x",
        acks=-1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )
    answer = PartitionProduceResponse(index=0, error_code=error, base_offset=base_offset)
    return (
        request,
        NEWEST,
        ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[answer])]),
    )


def end(epoch: int, *, commit: bool, error: int = 0) -> tuple[Any, int, Any]:
    """EndTxn of producer 5, and its answer."""
    request = EndTxnRequest(transactional_id="x", producer_id=5, producer_epoch=epoch, committed=commit)
    return request, 5, EndTxnResponse(error_code=error, producer_id=5, producer_epoch=epoch + 1)


def left(*, committed: list[tuple[int, bytes]], everything: list[tuple[int, bytes]], stable: int) -> Ending:
    """An end of the transaction of `began`."""
    empty = {"high watermark": 0, "last stable offset": 0}
    return {
        "partition 0": {"high watermark": len(everything), "last stable offset": stable},
        "partition 1": empty,
        "committed in partition 0": committed,
        "committed in partition 1": [],
        "all in partition 0": everything,
        "all in partition 1": [],
        "offsets": {},
        "stable offsets": {},
        "transactions": {"x": ("NONE", "CompleteAbort", 1, "producer 0", 1, False, [])},
    }


def test_an_aborted_record_that_is_visible_is_found() -> None:
    """The right end has no problem."""
    model = began()
    model.saw(*end(0, commit=False))
    log = [(0, b"value"), (1, MARKER)]
    assert not model.against(left(committed=[(1, MARKER)], everything=log, stable=2))
    assert model.against(left(committed=log, everything=log, stable=2))


def test_a_marker_that_is_missing_is_found() -> None:
    """The log is too short, and its last stable offset is that of the open transaction."""
    model = began()
    model.saw(*end(0, commit=True))
    assert model.against(left(committed=[], everything=[(0, b"value")], stable=0))


@pytest.mark.parametrize(
    ("answered", "words"),
    [
        (end(1, commit=True), "fenced"),
        (end(0, commit=True, error=48), "current producer ends"),
        (write(base_offset=3), "the end of partition 0 is 1"),
    ],
)
def test_wrong_answers_about_transactions_are_found(answered: tuple[Any, int, Any], words: str) -> None:
    """Another epoch ends it, its producer may not, an offset is skipped."""
    model = began()
    with pytest.raises(AssertionError, match=words):
        model.saw(*answered)


def test_strangers_that_a_group_takes_are_found() -> None:
    """A heartbeat and a commit of a member that never joined."""
    model = GroupModel()
    with pytest.raises(AssertionError, match="does not have"):
        model.saw(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, HeartbeatResponse(error_code=0))
    commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=1, member_id="m", topics=[])
    taken = OffsetCommitResponseTopic(
        name="t", partitions=[OffsetCommitResponsePartition(partition_index=0, error_code=0)]
    )
    with pytest.raises(AssertionError, match="does not have"):
        model.saw(commit, 9, OffsetCommitResponse(topics=[taken]))
