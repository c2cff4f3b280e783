"""What one peer may not do with transactions: take the memory of the coordinator, keep its loop from others, or end what is not its own.

Here: calls in numbers and sizes, and calls that are refused, each with what it may not change, seen by another client.
Not here: the code of each wrong call by itself, which is compared with Apache Kafka's (`tests.integration.broker`), and
groups (`test_groups`).
"""

import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from busway_protocol.compile import decode
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import FindCoordinatorRequest, OffsetFetchRequest, OffsetFetchRequestGroup
from busway_protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from busway_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    TopicRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from busway_protocol.records.builder import BatchBuilder
from tests.hostile.test_one_peer import answer, peers
from tests.hostile.test_share_groups import COME_AGAIN, put, taken
from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary
from tests.support.raw_client import frame

Identity = tuple[int, int]
ELEMENTS: Final = 12_000
"""Of the lists of a request at most."""
PARTITIONS: Final = 500
LARGE_PARTITIONS: Final = 240
LARGE_GROUPS: Final = 36
"""A commit is one batch, of `max.message.bytes` at most: so many partitions with the longest texts; so many groups fill what a host may have."""
QUARTER_MS: Final = 900_000
"""The longest that a transaction may take."""
MODEST: Final = "127.0.0.2"
"""A host of few wishes; each deed's greedy one is another."""
WIDE, NARROW = "wide", "narrow"


@pytest.fixture(scope="module", autouse=True)
def topics(hostile_broker: BuswayProcess) -> None:
    """A topic of very many partitions and one of one, and both coordinators."""
    with peers(hostile_broker, 1) as (peer,):
        loose = [CreatableTopicConfig(name="durability", value="os")]
        wanted = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=loose)
            for name, count in ((WIDE, PARTITIONS), (NARROW, 1))
        ]
        made = put(peer, CreateTopicsRequest(topics=wanted, timeout_ms=60_000), 5)
        assert {topic.error_code for topic in made.topics} == {0}
        for kind in (0, 1):
            while (
                put(peer, FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]), 4).coordinators[0].error_code
            ):
                pass
        while put(peer, begin("ready"), 4).error_code in COME_AGAIN:
            pass


def begin(name: str, *, timeout_ms: int = QUARTER_MS) -> InitProducerIdRequest:
    """A producer begins."""
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)


def begun(peer: socket.socket, name: str) -> Identity:
    """Its identity."""
    response = put(peer, begin(name), 4)
    assert response.error_code == 0, ErrorCode(response.error_code)
    return response.producer_id, response.producer_epoch


def add(name: str, identity: Identity, partitions: Sequence[int]) -> AddPartitionsToTxnRequest:
    """Partitions of the wide topic join a transaction."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=identity[0],
        v3_and_below_producer_epoch=identity[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=WIDE, partitions=list(partitions))],
    )


def added(peer: socket.socket, name: str, identity: Identity, partitions: Sequence[int]) -> set[int]:
    """The codes that it is answered with."""
    response = put(peer, add(name, identity, partitions), 3)
    return {
        row.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }


def end(name: str, identity: Identity, *, commit: bool = True) -> EndTxnRequest:
    """A transaction ends."""
    return EndTxnRequest(transactional_id=name, producer_id=identity[0], producer_epoch=identity[1], committed=commit)


def offsets(
    name: str, identity: Identity, group: str, metadata: str, partitions: int = PARTITIONS
) -> TxnOffsetCommitRequest:
    """How far a group has read the wide topic."""
    parts = [
        TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=7, committed_metadata=metadata)
        for number in range(partitions)
    ]
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=identity[0],
        producer_epoch=identity[1],
        topics=[TxnOffsetCommitRequestTopic(name=WIDE, partitions=parts)],
    )


def committed(peer: socket.socket, request: TxnOffsetCommitRequest) -> set[int]:
    """The codes that a commit is answered with."""
    return {part.error_code for topic in put(peer, request, 5).topics for part in topic.partitions}


def stored(peer: socket.socket, group: str) -> int:
    """How many offsets of a group are in force, as another client sees it."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True)
    while True:
        (stored_group,) = put(peer, request, 9).groups
        if stored_group.error_code not in COME_AGAIN | {ErrorCode.UNSTABLE_OFFSET_COMMIT}:
            break
    codes = {part.error_code for topic in stored_group.topics for part in topic.partitions}
    if codes == {ErrorCode.UNSTABLE_OFFSET_COMMIT}:
        return stored(peer, group)
    assert codes <= {0}, codes
    return sum(part.committed_offset == 7 for topic in stored_group.topics for part in topic.partitions)


def write(name: str | None, identity: Identity, sequence: int) -> ProduceRequest:
    """One record for the narrow topic."""
    builder = BatchBuilder(
        producer_id=identity[0], producer_epoch=identity[1], base_sequence=sequence, transactional=name is not None
    )
    builder.append(1_700_000_000_000, None, b"v")
    data = [PartitionProduceData(index=0, records=builder.build())]
    topic = TopicProduceData(name=NARROW, partition_data=data)
    return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=[topic])


def written(peer: socket.socket, name: str | None, identity: Identity, sequence: int) -> tuple[int, int]:
    """Its code and offset."""
    (part,) = put(peer, write(name, identity, sequence), 12).responses[0].partition_responses
    return part.error_code, part.base_offset


def ends(peer: socket.socket) -> tuple[int, int]:
    """Where the narrow topic ends, and where it does for readers of what is committed."""
    query = ListOffsetsTopic(name=NARROW, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    end_offsets = [
        put(peer, ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[query]), 7)
        .topics[0]
        .partitions[0]
        .offset
        for level in (0, 1)
    ]
    return end_offsets[0], end_offsets[1]


def state(peer: socket.socket, name: str) -> tuple[str, int]:
    """What is known of an id: its state and epoch, when that is not ending."""
    while True:
        (transaction,) = put(peer, DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
        if not transaction.transaction_state.startswith("Prepare"):
            return transaction.transaction_state, transaction.producer_epoch


@pytest.fixture
def witness(hostile_broker: BuswayProcess) -> Iterator[socket.socket]:
    """Another client."""
    with peers(hostile_broker, 1, source=MODEST) as (peer,):
        yield peer


def test_ids_without_end_leave_room_to_others(
    hostile_broker: BuswayProcess, canary: Canary, witness: socket.socket
) -> None:
    """A hundred thousand new ids from one host: it gets as many as leave half of the memory to others."""
    codes: Counter[int] = Counter()
    with peers(hostile_broker, 50, source="127.0.0.3") as many:
        for at, peer in enumerate(many):
            peer.sendall(b"".join(frame(begin(f"{at}-{number}-{'x' * 280}"), 4) for number in range(2_000)))
        for peer in many:
            codes.update(decode(InitProducerIdResponse, 4, answer(peer), 5).error_code for _ in range(2_000))
    assert codes.keys() == {0, ErrorCode.POLICY_VIOLATION}
    assert 25_000 < codes[0] < 35_000
    begun(witness, "modest")


def test_transactions_of_very_many_partitions(
    hostile_broker: BuswayProcess, canary: Canary, witness: socket.socket
) -> None:
    """Each names all partitions of a topic, again and again, until its host has as much as it leaves free; what is asked of all of them is
    answered beside others, and one of another host ends."""
    every = [*range(PARTITIONS)]
    names = [f"many-{number}" for number in range(600)]
    with peers(hostile_broker, 1, source="127.0.0.4") as (peer,):
        producers = {name: begun(peer, name) for name in names}
        codes = [added(peer, name, producers[name], every) for name in names]
        assert codes[0] == {0}
        assert codes[-1] == {ErrorCode.POLICY_VIOLATION}
        for _ in range(20):
            assert added(peer, names[0], producers[names[0]], every * (ELEMENTS // PARTITIONS - 1)) == {0}
        assert (state(witness, names[0])[0], state(witness, names[-1])[0]) == ("Ongoing", "Empty")
        for asked in (names[:20], names * (ELEMENTS // len(names))):
            response = put(peer, DescribeTransactionsRequest(transactional_ids=asked), 0)
            assert sorted(transaction.transactional_id for transaction in response.transaction_states) == sorted(
                set(asked)
            )
        modest = begun(witness, "modest")
        assert added(witness, "modest", modest, every[:100]) == {0}
        assert put(witness, end("modest", modest, commit=False), 5).error_code == 0
        assert state(peer, "modest")[0] == "CompleteAbort"


def test_offsets_of_open_transactions(hostile_broker: BuswayProcess, canary: Canary, witness: socket.socket) -> None:
    """Of very many partitions with the longest texts, until a host has as much as it leaves free; none of them is in force when that is
    aborted, and its room is free. Then of fifty groups, all at once in force."""
    with peers(hostile_broker, 1, source="127.0.0.5") as (peer,):
        identity = begun(peer, "offsets")
        large = [
            offsets("offsets", identity, f"large-{at}", "m" * 4_096, LARGE_PARTITIONS) for at in range(LARGE_GROUPS)
        ]
        codes = [committed(peer, request) for request in large]
        assert codes[0] == {0}
        too_large = offsets("offsets", identity, "large-0", "m" * 4_096, 2 * LARGE_PARTITIONS)
        assert committed(peer, too_large) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        too_large = offsets("offsets", identity, "large-0", "m" * 4_096, 2 * LARGE_PARTITIONS)
        assert committed(peer, too_large) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert codes[-1] == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        other = begun(witness, "modest-offsets")
        assert committed(witness, offsets("modest-offsets", other, "modest", "")) == {0}
        ended = put(peer, end("offsets", identity, commit=False), 5)
        assert ended.error_code == 0
        assert state(witness, "offsets")[0] == "CompleteAbort"
        assert [stored(witness, f"large-{at}") for at in range(LARGE_GROUPS)] == [0] * LARGE_GROUPS
        identity = ended.producer_id, ended.producer_epoch
        too_long = committed(peer, offsets("offsets", identity, "large-0", "m" * 4_097))
        assert too_long == {ErrorCode.OFFSET_METADATA_TOO_LARGE}
        for at in range(50):
            assert committed(peer, offsets("offsets", identity, f"small-{at}", "")) == {0}
        assert put(peer, end("offsets", identity), 5).error_code == 0
        assert state(witness, "offsets")[0] == "CompleteCommit"
        assert {stored(witness, f"small-{at}") for at in range(50)} == {PARTITIONS}


def test_an_end_that_is_asked_for_by_many_comes_once(
    hostile_broker: BuswayProcess, canary: Canary, witness: socket.socket
) -> None:
    """Twenty connections ask a hundred times each for the end of one transaction, some of them for another one; it has one end, with one
    marker, and asking again afterwards changes nothing."""
    with peers(hostile_broker, 20) as many:
        identity = producer_id, epoch = begun(witness, "raced")
        before, _ = ends(witness)
        assert written(witness, "raced", identity, 0) == (0, before)
        for at, peer in enumerate(many):
            peer.sendall(frame(end("raced", identity, commit=at % 4 != 0), 5) * 100)
        request = end("raced", identity)
        responses = [taken(peer, request, 5) for peer in many for _ in range(100)]
        codes = {response.error_code for response in responses}
        assert 0 in codes
        assert codes <= {0, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE}, codes
        assert {
            (response.producer_id, response.producer_epoch) for response in responses if not response.error_code
        } == {(producer_id, epoch + 1)}
        outcome, after = state(witness, "raced")
        assert after == epoch + 1
        assert ends(witness) == (before + 2, before + 2)
        way = outcome == "CompleteCommit"
        assert put(many[0], end("raced", identity, commit=way), 5).error_code == 0
        assert put(many[0], end("raced", identity, commit=not way), 5).error_code == ErrorCode.INVALID_TXN_STATE
        stale = put(many[0], end("raced", (producer_id, epoch - 1), commit=way), 5)
        assert stale.error_code == ErrorCode.PRODUCER_FENCED
        assert state(witness, "raced") == (outcome, epoch + 1)
        assert ends(witness) == (before + 2, before + 2)


def markers(identity: Identity, count: int, topic: str, *, coordinator_epoch: int = 0) -> WriteTxnMarkersRequest:
    """The same end, so many times."""
    marker = WritableTxnMarker(
        producer_id=identity[0],
        producer_epoch=identity[1],
        transaction_result=True,
        coordinator_epoch=coordinator_epoch,
        transaction_version=2,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
    )
    return WriteTxnMarkersRequest(markers=[marker] * count)


def test_markers_of_no_coordinator(hostile_broker: BuswayProcess, canary: Canary, witness: socket.socket) -> None:
    """Four thousand in a request, which end nothing: of an older epoch, of a coordinator that was replaced, for what is not there."""
    first = begun(witness, "ended")
    assert written(witness, "ended", first, 0)[0] == 0
    assert put(witness, end("ended", first), 5).error_code == 0
    assert state(witness, "ended")[0] == "CompleteCommit"
    begun(witness, "open")
    ongoing = begun(witness, "open")
    _, start = written(witness, "open", ongoing, 0)
    before = ends(witness)
    assert before == (start + 1, start)
    flood = [
        (markers((ongoing[0], ongoing[1] - 1), 4_000, NARROW), ErrorCode.INVALID_PRODUCER_EPOCH),
        (
            markers((first[0], first[1] + 1), 4_000, NARROW, coordinator_epoch=-1),
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ),
        (markers(ongoing, 4_000, "none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    with peers(hostile_broker, 3, source="127.0.0.6") as many:
        for _ in range(3):
            for peer, (request, _) in zip(many, flood, strict=True):
                peer.sendall(frame(request, 2))
            for peer, (request, code) in zip(many, flood, strict=True):
                response = taken(peer, request, 2)
                assert {
                    row.error_code for marker in response.markers for topic in marker.topics for row in topic.partitions
                } == {code}
    assert ends(witness) == before
    assert state(witness, "open") == ("Ongoing", ongoing[1])
    assert put(witness, end("open", ongoing), 5).error_code == 0
    assert state(witness, "open")[0] == "CompleteCommit"


def test_producers_that_are_asked_for_again_and_again(
    hostile_broker: BuswayProcess, canary: Canary, witness: socket.socket
) -> None:
    """Four thousand strangers have ended something in a partition, which one request names twelve thousand times; so does one with the
    names of transactions, and with filters and patterns that take long elsewhere."""
    with peers(hostile_broker, 1, source="127.0.0.6") as (peer,):
        strangers = markers((0, 0), 4_000, NARROW)
        strangers.markers = [
            WritableTxnMarker(
                producer_id=10**12 + number,
                producer_epoch=0,
                transaction_result=False,
                coordinator_epoch=0,
                transaction_version=2,
                topics=[WritableTxnMarkerTopic(name=NARROW, partition_indexes=[0])],
            )
            for number in range(4_000)
        ]
        response = put(peer, strangers, 2)
        assert {
            row.error_code for marker in response.markers for topic in marker.topics for row in topic.partitions
        } == {0}
        topics = [TopicRequest(name=NARROW, partition_indexes=[0] * (ELEMENTS - 1))]
        producers = put(peer, DescribeProducersRequest(topics=topics), 0).topics[0].partitions[0]
        assert {producer.producer_id for producer in producers.active_producers} >= {10**12, 10**12 + 3_999}
        for asked in (
            ListTransactionsRequest(state_filters=["Nope"] * 6_000, producer_id_filters=[*range(5_999)]),
            ListTransactionsRequest(
                state_filters=[f"no-{number}" for number in range(ELEMENTS)], producer_id_filters=[]
            ),
            *(
                ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
                for pattern in ("(x+x+)+y", ".*x{1,100}y", "x{1,100}" * 3, "(" * 1_001, "((x{100}){100}){100}")
            ),
        ):
            assert put(peer, asked, 2).error_code in {0, ErrorCode.INVALID_REGULAR_EXPRESSION}


def test_what_is_refused_has_no_effect(hostile_broker: BuswayProcess, canary: Canary, witness: socket.socket) -> None:
    """An older epoch, a gap, a batch that comes again, a time-out that is too long, a hundred times each: the log ends where it did, and the
    next thing that is right is taken in."""
    with peers(hostile_broker, 1, source="127.0.0.7") as (peer,):
        plain = begun(peer, "refused")
        fenced, current = plain, begun(peer, "refused")
        code, first = written(peer, "refused", current, 0)
        assert code == 0
        before = ends(witness)
        for _ in range(100):
            assert written(peer, "refused", fenced, 0)[0] in {
                ErrorCode.INVALID_PRODUCER_EPOCH,
                ErrorCode.PRODUCER_FENCED,
            }
            assert written(peer, "refused", current, 5)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert written(peer, "refused", current, 0) == (0, first)
            for timeout_ms in (QUARTER_MS + 1, 2**31 - 1, 0, -1):
                for name in ("refused", "refused-new"):
                    response = put(peer, begin(name, timeout_ms=timeout_ms), 4)
                    assert response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
                    assert response.producer_id == -1
        assert ends(witness) == before
        assert state(witness, "refused") == ("Ongoing", current[1])
        unknown = DescribeTransactionsRequest(transactional_ids=["refused-new"])
        (described,) = put(witness, unknown, 0).transaction_states
        assert described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert written(peer, "refused", current, 1) == (0, first + 1)
        assert put(peer, end("refused", current), 5).error_code == 0
        assert state(witness, "refused") == ("CompleteCommit", current[1] + 1)
        assert ends(witness) == (first + 3, first + 3)
