"""Requests to one leader, and when: on a connection that a test plays."""

import asyncio
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from busway.cluster.client import ClusterClient
from busway.errors import AcknowledgementFailed
from busway.options import ShareConsumerOptions
from busway.share.acquired import ACCEPT, RENEW
from busway.share.fetcher import ShareFetcher
from busway.share.leader import Leader
from busway.share.membership import ShareMember
from busway.types import TopicPartition
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.share_groups import (
    AcknowledgedPartition,
    AcquiredRecords,
    FetchedPartition,
    LeaderIdAndEpoch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from busway_protocol.records.builder import BatchBuilder

TOPIC = UUID(int=1)
LOCKED = 5
"""Records of each partition that the member holds."""
Said = list[tuple[int, int, int, int]]
"""Partition, first and last offset, and what became of them."""


class Broker:
    """Takes acknowledgements but those of the offsets in `wrong`, and remembers all requests.

    Attributes:
        reachable: connections are made while it is set.
    """

    def __init__(self, version: int = 2) -> None:
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.asked = asyncio.Event()
        self.wrong: set[tuple[int, int]] = set()
        self.sent: list[Said] = []
        self._version = version

    async def connection(self, node: int, purpose: str) -> "Broker":
        """Itself."""
        self.asked.set()
        await self.reachable.wait()
        return self

    def version(self, api: ApiKey) -> int:
        """That of ShareAcknowledge."""
        return self._version

    async def request(self, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
        """Answers as brokers do: all of a partition is taken, or nothing."""
        said: Said = [
            (part.partition_index, batch.first_offset, batch.last_offset, batch.acknowledge_types[0])
            for topic in request.topics
            for part in topic.partitions
            for batch in part.acknowledgement_batches
        ]
        self.sent.append(said)
        assert request.is_renew_ack == any(kind == RENEW for *_, kind in said)
        refused = {
            number
            for number, first, last, _ in said
            if any((number, offset) in self.wrong for offset in range(first, last + 1))
        }
        answers = [
            AcknowledgedPartition(
                partition_index=number,
                error_code=ErrorCode.INVALID_RECORD_STATE if number in refused else ErrorCode.NONE,
                current_leader=LeaderIdAndEpoch(),
            )
            for number in sorted({number for number, *_ in said})
        ]
        return ShareAcknowledgeResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=30_000,
            responses=[ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=answers)] if answers else [],
            node_endpoints=[],
        )


def leader_of(broker: Broker) -> Leader:
    """It has given the member the first offsets of partitions 0 and 1."""
    options = ShareConsumerOptions(group_id="workers")
    leader = Leader(1, cast("ClusterClient", broker), options, "me", lambda key: TopicPartition("jobs", key[1]))
    leader.session.advance_epoch()
    for number in (0, 1):
        give(leader, number)
        hand_out(leader, LOCKED)
    return leader


def give(leader: Leader, number: int) -> None:
    """An answer brings the first offsets of a partition."""
    builder = BatchBuilder()
    for _ in range(LOCKED):
        builder.append(1, None, b"job")
    data = FetchedPartition(
        partition_index=number,
        error_code=0,
        acknowledge_error_code=0,
        current_leader=LeaderIdAndEpoch(),
        records=memoryview(builder.build(0)),
        acquired_records=[AcquiredRecords(first_offset=0, last_offset=LOCKED - 1, delivery_count=1)],
    )
    until_s = asyncio.get_running_loop().time() + 30
    assert leader._take_in((TOPIC, number), TopicPartition("jobs", number), data, until_s) is None


def hand_out(leader: Leader, count: int) -> None:
    """The consumer takes so many records."""
    taken = leader.take(count, 0.0)
    assert taken is not None
    assert len(taken[1].records) == count


def fetcher_of(leader: Leader) -> ShareFetcher:
    """It has that leader, and nothing is assigned to its member."""
    cluster = SimpleNamespace(metadata=SimpleNamespace(topics={}))
    member = SimpleNamespace(assigned=frozenset(), group="workers", member_id="me")
    options = ShareConsumerOptions(group_id="workers")
    fetcher = ShareFetcher(cast("ClusterClient", cluster), options, cast("ShareMember", member))
    fetcher._leaders[leader.node] = leader
    return fetcher


def say(leader: Leader, number: int, offset: int, kind: int = ACCEPT) -> "asyncio.Future[None]":
    """What became of a record."""
    held = leader.held(TopicPartition("jobs", number), offset)
    assert held is not None
    return held.acknowledge(offset, kind)


async def tell_all(leader: Leader) -> None:
    """Request by request."""
    while leader.waiting:
        await leader.acknowledge()


async def test_what_one_request_refuses_takes_nothing_along() -> None:
    """One record that is another's meanwhile: all others of its partition are accepted."""
    broker = Broker()
    leader = leader_of(broker)
    broker.wrong = {(0, 2)}
    said = {(number, offset): say(leader, number, offset) for number in (0, 1) for offset in range(LOCKED)}
    await tell_all(leader)
    assert {place for place, future in said.items() if future.exception() is not None} == broker.wrong
    assert broker.sent[0] == [(0, 0, 4, ACCEPT), (1, 0, 4, ACCEPT)]
    assert len(broker.sent) < 2 * LOCKED


async def test_renewals_and_what_is_final_go_out_in_turns() -> None:
    """A member that renews again and again holds nothing up, and what is final has no renewal with it."""
    broker = Broker()
    leader = leader_of(broker)
    done = [say(leader, 0, 1), say(leader, 1, 1)]
    for _ in range(3):
        say(leader, 0, 0, RENEW)
        await leader.acknowledge()
    assert broker.sent == [
        [(0, 0, 0, RENEW)],
        [(0, 1, 1, ACCEPT), (1, 1, 1, ACCEPT)],
        [(0, 0, 0, RENEW)],
    ]
    await asyncio.gather(*done)


async def test_what_is_said_while_it_is_looked_up_whether_locks_can_be_renewed_is_told() -> None:
    """A broker that renews none: renewals fail, and all that is final before and meanwhile is sent."""
    broker = Broker(version=1)
    leader = leader_of(broker)
    renewal, before = say(leader, 0, 0, RENEW), say(leader, 1, 0)
    broker.reachable.clear()
    broker.asked.clear()
    asking = asyncio.ensure_future(leader.acknowledge())
    await broker.asked.wait()
    meanwhile = say(leader, 1, 1)
    broker.reachable.set()
    await asking
    await tell_all(leader)
    assert broker.sent == [[(1, 0, 1, ACCEPT)]]
    await asyncio.gather(before, meanwhile)
    with pytest.raises(AcknowledgementFailed, match=r"renews no locks; it takes Apache Kafka 4\.2"):
        await renewal


async def test_at_its_end_a_session_tells_all_that_can_be_told() -> None:
    """What one request refuses is sent again in others before the session ends; renewals are not sent any more."""
    broker = Broker()
    leader = leader_of(broker)
    broker.wrong = {(0, 0)}
    renewal = say(leader, 1, 0, RENEW)
    said = [say(leader, 0, offset) for offset in range(3)]
    await leader.close()
    with pytest.raises(AcknowledgementFailed, match="ends"):
        await renewal
    assert [future.exception() is None for future in said] == [False, True, True]
    assert broker.sent[-1] == []
    assert not leader.waiting
    assert leader.held(TopicPartition("jobs", 1), 0) is None


async def test_a_fetch_of_some_partitions_leaves_what_it_cannot_tell_to_a_request_of_its_own() -> None:
    """Of a partition that is another member's now, renewals, and what was refused together; all else goes with the fetch."""
    broker = Broker()
    leader = leader_of(broker)
    wanted = {(TOPIC, 0): TopicPartition("jobs", 0)}
    say(leader, 0, 0)
    assert leader.waiting
    assert not leader.is_urgent(wanted)
    say(leader, 1, 0)
    assert leader.is_urgent(wanted)
    await leader.acknowledge()
    assert not leader.waiting
    say(leader, 0, 1, RENEW)
    assert leader.is_urgent(wanted)
    await leader.acknowledge()
    broker.wrong = {(0, 2)}
    said = [say(leader, 0, offset) for offset in (2, 3)]
    assert not leader.is_urgent(wanted)
    await leader.acknowledge()
    assert leader.is_urgent(wanted)
    await tell_all(leader)
    assert [future.exception() is None for future in said] == [False, True]


@pytest.mark.parametrize("kind", [ACCEPT, RENEW])
async def test_what_waits_to_be_sent_fails_when_its_record_is_delivered_again(kind: int) -> None:
    """The earlier lock has ended: each future ends, and the acknowledgement of the second delivery is sent."""
    broker = Broker()
    leader = leader_of(broker)
    first = say(leader, 0, 1, kind)
    other = say(leader, 1, 1, kind)
    give(leader, 0)
    assert leader.held(TopicPartition("jobs", 0), 2) is None, "it is not handed out again yet"
    hand_out(leader, LOCKED)
    second = say(leader, 0, 1)
    await tell_all(leader)
    assert isinstance(first.exception(), AcknowledgementFailed)
    assert "it comes again" in str(first.exception())
    assert (second.result(), other.result()) == (None, None)
    assert sorted(part for sent in broker.sent for part in sent) == [(0, 1, 1, ACCEPT), (1, 1, 1, kind)]


async def test_what_waits_to_be_sent_fails_when_the_consumer_ends() -> None:
    """A leader that was put off has not been asked again: a caller that waits in commit() is not left waiting."""
    leader = leader_of(Broker())
    leader.retry_at = asyncio.get_running_loop().time() + 3_600
    fetcher = fetcher_of(leader)
    running = asyncio.get_running_loop().create_task(fetcher.run())
    waiting = say(leader, 0, 1)
    await asyncio.sleep(0)
    assert not waiting.done()
    running.cancel()
    await asyncio.wait([running])
    assert isinstance(waiting.exception(), AcknowledgementFailed)
