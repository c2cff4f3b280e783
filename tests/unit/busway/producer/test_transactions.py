"""A producer's transactions against a coordinator that answers as it is scripted: the order of requests, and what each refusal means."""

import asyncio
import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest
from tests.unit.busway.producer.conftest import Records, ScriptedCluster

from busway.errors import (
    BuswayError,
    ConnectionFailed,
    DeliveryFailed,
    InvalidTransactionState,
    ProducerFenced,
    TransactionAbortable,
    TransactionFailed,
    TransactionInDoubt,
)
from busway.options import ProducerOptions
from busway.producer import transaction_requests
from busway.producer.transaction_requests import TransactionRequests
from busway.producer.transactions import Transactions
from busway.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from busway_protocol.errors import ErrorCode
from busway_protocol.messages import transactions as messages
from busway_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

PARTITION = ("t", 0)
OFFSETS = {TopicPartition("source", 0): OffsetAndMetadata(5)}
GROUP = GroupMetadata(group_id="g", generation=3, member_id="m")
REFUSED_FOR_GOOD = (
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
PASSING = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_requests, "SOON_S", 0.0)


def identified(epoch: int, code: ErrorCode = ErrorCode.NONE) -> InitProducerIdResponse:
    """An answer to InitProducerId."""
    return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=epoch)


def added(*codes: ErrorCode) -> AddPartitionsToTxnResponse:
    """An answer to AddPartitionsToTxn, with a code for each partition."""
    results = [
        messages.AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
        for number, code in enumerate(codes)
    ]
    topic = messages.AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def offsets_taken(code: ErrorCode = ErrorCode.NONE) -> TxnOffsetCommitResponse:
    """An answer to TxnOffsetCommit."""
    partition = messages.TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
    return TxnOffsetCommitResponse(
        topics=[messages.TxnOffsetCommitResponseTopic(name="source", partitions=[partition])]
    )


async def started(level: int = 2, **options: Any) -> tuple[Transactions, ScriptedCluster, Records]:
    """A producer that has its id, at a level of transaction.version, and what it talks to."""
    cluster, records = ScriptedCluster(level=level), Records()
    settings = ProducerOptions(transactional_id="x", **options)
    transactions = Transactions(TransactionRequests(cluster, settings), records)  # type: ignore[arg-type]
    cluster.answer(InitProducerIdRequest, identified(0))
    await transactions.identify()
    return transactions, cluster, records


async def test_with_implicit_adds_only_the_end_is_asked_for_and_brings_the_next_epoch() -> None:
    """In the newest version; the record itself adds it to the transaction."""
    transactions, cluster, _ = await started()
    await transactions.begin()
    assert not transactions.lacks(PARTITION)
    transactions.sent(PARTITION)
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0, producer_id=7, producer_epoch=1))
    await transactions.end(commit=True)
    assert cluster.kinds() == ["InitProducerId", "EndTxn"]
    assert cluster.asked[-1].at_most is None
    assert transactions.identity == (7, 1)


async def test_before_that_partitions_and_groups_are_added_once_a_transaction() -> None:
    """In versions that mean it so, and the epoch stays."""
    transactions, cluster, _ = await started(level=1)
    for _ in range(2):
        await transactions.begin()
        assert transactions.lacks(PARTITION)
        cluster.answer(AddPartitionsToTxnRequest, added(ErrorCode.NONE))
        await transactions.add([PARTITION])
        assert not transactions.lacks(PARTITION)
        await transactions.add([PARTITION])
        cluster.answer(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse(error_code=0))
        for _ in range(2):
            cluster.answer(TxnOffsetCommitRequest, offsets_taken())
            await transactions.send_offsets(OFFSETS, GROUP)
        cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0))
        await transactions.end(commit=True)
    kinds = ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "TxnOffsetCommit", "EndTxn"]
    assert cluster.kinds() == ["InitProducerId", *kinds, *kinds]
    assert [request.at_most for request in cluster.asked[1:6]] == [3, None, 4, 4, 4]
    assert transactions.identity == (7, 0)


@pytest.mark.parametrize("commit", [True, False])
async def test_what_nobody_knows_of_is_not_ended(commit: bool) -> None:
    """Nothing was sent in it."""
    transactions, cluster, _ = await started()
    await transactions.begin()
    await transactions.end(commit=commit)
    assert cluster.kinds() == ["InitProducerId"]
    await transactions.begin()


@pytest.mark.parametrize("code", PASSING)
async def test_an_end_is_asked_for_until_it_is_decided(code: ErrorCode) -> None:
    """Also when the connection breaks; a coordinator that is none any more is looked for."""
    transactions, cluster, _ = await started()
    await transactions.begin()
    transactions.sent(PARTITION)
    lost = ConnectionFailed("gone")
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=code), lost, EndTxnResponse(error_code=code))
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0, producer_id=7, producer_epoch=1))
    await transactions.end(commit=True)
    moved = code not in {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert cluster.searches == (4 if moved else 2)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("code", [*FENCED, *REFUSED_FOR_GOOD])
async def test_a_producer_that_is_refused_for_good_can_do_nothing_more(code: ErrorCode, commit: bool) -> None:
    """And every further call says why, as the first one did."""
    transactions, cluster, records = await started()
    await transactions.begin()
    transactions.sent(PARTITION)
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=code))
    kind = ProducerFenced if code in FENCED else TransactionFailed
    with pytest.raises(kind, match=code.name) as caught:
        await transactions.end(commit=commit)
    assert type(caught.value) is kind
    assert caught.value.code is code
    for call in (transactions.begin(), transactions.end(commit=True), transactions.end(commit=False)):
        with pytest.raises(kind, match=code.name):
            await call
    with pytest.raises(kind, match=code.name):
        transactions.require_open()
    assert isinstance(records.abandoned[-1], kind)
    assert len(cluster.asked) == 2


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE])
async def test_a_commit_that_is_refused_can_be_aborted(code: ErrorCode) -> None:
    """The next transaction is as good as any (KIP-1050)."""
    transactions, cluster, _ = await started()
    await transactions.begin()
    transactions.sent(PARTITION)
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=code))
    with pytest.raises(TransactionAbortable, match=code.name):
        await transactions.end(commit=True)
    with pytest.raises(TransactionAbortable, match=code.name):
        await transactions.end(commit=True)
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0, producer_id=7, producer_epoch=2))
    await transactions.end(commit=False)
    assert [request.message.committed for request in cluster.asked[1:]] == [True, False]
    await transactions.begin()
    assert transactions.identity == (7, 2)


@pytest.mark.parametrize("level", [1, 2])
async def test_a_record_that_fails_during_the_flush_stops_the_commit(level: int) -> None:
    """Nothing is asked of the coordinator but the abort; where epochs stay, this one must not: its sequence numbers are in doubt."""
    transactions, cluster, records = await started(level)
    await transactions.begin()
    transactions.sent(PARTITION)
    late = DeliveryFailed("t-0: too late")
    records.flushing = lambda: transactions.batch_failed(None, late, lost_track=True)
    with pytest.raises(TransactionAbortable, match="too late") as caught:
        await transactions.end(commit=True)
    assert caught.value.__cause__ is late
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0, producer_id=7 if level == 2 else -1, producer_epoch=1))
    if level == 1:
        cluster.answer(InitProducerIdRequest, identified(1))
    await transactions.end(commit=False)
    assert cluster.kinds() == ["InitProducerId", "EndTxn", *(["InitProducerId"] if level == 1 else [])]
    assert not cluster.asked[1].message.committed
    assert transactions.identity == (7, 1)
    if level == 1:
        again = cluster.asked[2].message
        assert (again.producer_id, again.producer_epoch) == (7, 0)


async def test_a_refusal_of_one_partition_fails_the_transaction_by_its_name() -> None:
    """Among those that were not tried because of it, and those that may be tried again."""
    transactions, cluster, _ = await started(level=1)
    await transactions.begin()
    codes = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    cluster.answer(AddPartitionsToTxnRequest, added(*codes))
    await transactions.add([("t", number) for number in range(3)])
    with pytest.raises(TransactionAbortable, match="TOPIC_AUTHORIZATION_FAILED"):
        await transactions.end(commit=True)
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))
    await transactions.end(commit=False)  # the coordinator has no transaction, which is what an abort is for
    await transactions.begin()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
async def test_offsets_that_are_refused_fail_the_transaction_alone(code: ErrorCode) -> None:
    """They are sent with the member's generation, and tried again while that can help."""
    transactions, cluster, _ = await started()
    await transactions.begin()
    cluster.answer(TxnOffsetCommitRequest, offsets_taken(ErrorCode.NOT_COORDINATOR), offsets_taken(code))
    with pytest.raises(TransactionAbortable, match=code.name):
        await transactions.send_offsets(OFFSETS, GROUP)
    sent = cluster.asked[-1].message
    assert (sent.generation_id, sent.member_id, sent.group_id) == (3, "m", "g")
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0, producer_id=7, producer_epoch=1))
    await transactions.end(commit=False)
    await transactions.begin()


class Guard:
    """A consumer that refuses some partitions."""

    def __init__(self, *refused: TopicPartition) -> None:
        self.refused = refused
        self.settled_offsets: list[Any] = []
        self.problem: Exception | None = None

    def allow(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise what the test has set."""
        if self.problem is not None:
            raise self.problem

    def check(self, partitions: Iterable[TopicPartition], member: GroupMetadata) -> None:
        """Refuse them."""
        if set(partitions).intersection(self.refused):
            raise TransactionAbortable("given up since")

    def settled(self, offsets: Any) -> None:
        """Keep them for the test."""
        self.settled_offsets.append(offsets)


async def test_the_consumer_is_asked_before_its_offsets_are_sent() -> None:
    """What it refuses is not sent, and nothing of the transaction can be committed then."""
    transactions, cluster, _ = await started()
    await transactions.begin()
    cluster.answer(TxnOffsetCommitRequest, offsets_taken())
    guard = Guard()
    await transactions.send_offsets(OFFSETS, dataclasses.replace(GROUP, guard=guard))
    assert guard.settled_offsets == [OFFSETS]
    guard.refused = tuple(OFFSETS)
    with pytest.raises(TransactionAbortable, match="given up since"):
        await transactions.send_offsets(OFFSETS, dataclasses.replace(GROUP, guard=guard))
    with pytest.raises(TransactionAbortable, match="given up since"):
        await transactions.end(commit=True)
    assert cluster.kinds() == ["InitProducerId", "TxnOffsetCommit"]
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0, producer_id=7, producer_epoch=1))
    await transactions.end(commit=False)
    assert not cluster.asked[-1].message.committed


@pytest.mark.parametrize("problem", [ValueError("auto commit"), InvalidTransactionState("a commit is under way")])
async def test_a_mistake_with_commits_leaves_the_transaction_open(problem: Exception) -> None:
    """Nothing was sent: it can be mended and the offsets sent again."""
    transactions, cluster, _ = await started()
    await transactions.begin()
    guard = Guard()
    guard.problem = problem
    with pytest.raises(type(problem), match=str(problem)):
        await transactions.send_offsets(OFFSETS, dataclasses.replace(GROUP, guard=guard))
    assert cluster.kinds() == ["InitProducerId"]
    guard.problem = None
    cluster.answer(TxnOffsetCommitRequest, offsets_taken())
    await transactions.send_offsets(OFFSETS, dataclasses.replace(GROUP, guard=guard))
    assert guard.settled_offsets == [OFFSETS]


class Input:
    """What a transaction reads; keeps its calls."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.problem: BuswayError | None = None

    def begin(self) -> None:
        """Refuse, if the test says so."""
        self._note("begin")

    def offsets(self) -> tuple[dict[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """Refuse, if the test says so."""
        self._note("offsets")
        return OFFSETS, GROUP

    def _note(self, event: str) -> None:
        if self.problem is not None:
            raise self.problem
        self.events.append(event)

    def ended(self, *, committed: bool) -> None:
        """Keep it for the test."""
        self.events.append("committed" if committed else "aborted")


async def test_a_transaction_takes_the_offsets_of_its_input_along() -> None:
    """Once, when it is committed; a commit that is in doubt and asked again does not send them again."""
    transactions, cluster, _ = await started(delivery_timeout_ms=1)
    source = Input()
    await transactions.begin(source)
    cluster.answer(TxnOffsetCommitRequest, offsets_taken())
    cluster.answer(EndTxnRequest, *(ConnectionFailed("gone") for _ in range(10_000)))
    with pytest.raises(TransactionInDoubt):
        await transactions.end(commit=True)
    assert source.events == ["begin", "offsets"]
    cluster.answers[EndTxnRequest].clear()
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0, producer_id=7, producer_epoch=1))
    await transactions.end(commit=True)
    assert source.events == ["begin", "offsets", "committed"]
    assert cluster.kinds().count("TxnOffsetCommit") == 1
    await transactions.begin()
    await transactions.end(commit=True)
    assert source.events == ["begin", "offsets", "committed"]


async def test_what_is_handed_out_while_a_commit_waits_for_its_records_is_not_part_of_it() -> None:
    """The offsets are taken first: another task that polls meanwhile has sent nothing for what it gets."""
    transactions, cluster, records = await started()
    source = Input()
    await transactions.begin(source)
    records.flushing = lambda: source.events.append("flush")
    cluster.answer(TxnOffsetCommitRequest, offsets_taken())
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0, producer_id=7, producer_epoch=1))
    await transactions.end(commit=True)
    assert source.events == ["begin", "offsets", "flush", "committed"]


@pytest.mark.parametrize("code", [None, ErrorCode.ILLEGAL_GENERATION])
async def test_an_input_that_is_refused_goes_back(code: ErrorCode | None) -> None:
    """By the consumer itself, or by the group."""
    transactions, cluster, _ = await started()
    source = Input()
    await transactions.begin(source)
    transactions.sent(PARTITION)
    if code is None:
        source.problem = TransactionAbortable("given up since")
    else:
        cluster.answer(TxnOffsetCommitRequest, offsets_taken(code))
    with pytest.raises(TransactionAbortable):
        await transactions.end(commit=True)
    assert "EndTxn" not in cluster.kinds()
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0, producer_id=7, producer_epoch=1))
    await transactions.end(commit=False)
    assert source.events[-1] == "aborted"


async def test_an_input_that_is_not_ready_opens_nothing() -> None:
    """And another transaction may be begun."""
    transactions, _, _ = await started()
    source = Input()
    source.problem = InvalidTransactionState("not ready")
    with pytest.raises(InvalidTransactionState, match="not ready"):
        await transactions.begin(source)
    await transactions.begin()
    with pytest.raises(InvalidTransactionState, match="open already"):
        await transactions.begin(Input())
    await transactions.end(commit=False)
    assert source.events == []


async def test_a_commit_that_is_not_answered_in_time_is_in_doubt() -> None:
    """Only the same commit may be asked for again."""
    transactions, cluster, _ = await started(delivery_timeout_ms=1)
    await transactions.begin()
    transactions.sent(PARTITION)
    cluster.answer(EndTxnRequest, *(ConnectionFailed("gone") for _ in range(10_000)))
    with pytest.raises(TransactionInDoubt, match="not known"):
        await transactions.end(commit=True)
    with pytest.raises(InvalidTransactionState, match="cannot be taken back"):
        await transactions.end(commit=False)
    with pytest.raises(InvalidTransactionState, match="being committed"):
        await transactions.begin()
    cluster.answers[EndTxnRequest].clear()
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0, producer_id=7, producer_epoch=1))
    await transactions.end(commit=True)
    assert all(request.message.committed for request in cluster.asked[1:])


async def test_who_waited_does_not_send_in_another_transaction() -> None:
    """A record that waited for room belongs to the transaction in which it was handed over."""
    transactions, _, _ = await started()
    number = await transactions.begin()
    transactions.require(number)
    await transactions.end(commit=True)
    await transactions.begin()
    with pytest.raises(InvalidTransactionState, match="has ended meanwhile"):
        transactions.require(number)


async def test_a_cancelled_end_goes_on() -> None:
    """And its caller hears of the cancellation when it is over."""
    transactions, cluster, _ = await started()
    await transactions.begin()
    transactions.sent(PARTITION)
    gate = cluster.held[EndTxnRequest] = asyncio.Event()
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=0, producer_id=7, producer_epoch=1))
    task = asyncio.ensure_future(transactions.end(commit=True))
    while len(cluster.asked) < 2:
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    with pytest.raises(InvalidTransactionState, match="being ended"):
        transactions.require_open()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert transactions.identity == (7, 1)
    await transactions.begin()


async def test_a_producer_that_is_started_once_more_takes_the_id_over_again() -> None:
    """Also one that was fenced: to start it is to say that it should work."""
    transactions, cluster, _ = await started()
    await transactions.begin()
    transactions.sent(PARTITION)
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED))
    with pytest.raises(ProducerFenced):
        await transactions.end(commit=True)
    cluster.answer(InitProducerIdRequest, identified(5))
    await transactions.identify()
    assert (cluster.asked[-1].message.producer_id, transactions.identity) == (-1, (7, 5))
    await transactions.begin()


async def test_whose_time_is_over_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fenced producer cannot know what has happened; that its transaction was open for too long says much."""
    transactions, cluster, _ = await started(transaction_timeout_ms=1_000)
    await transactions.begin()
    transactions.sent(PARTITION)
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now + 5)
    cluster.answer(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED))
    with pytest.raises(ProducerFenced, match=r"open for 5\.\d s, longer than transaction_timeout_ms=1000"):
        await transactions.end(commit=True)
