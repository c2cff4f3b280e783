"""Transactions that take the offsets of a consumer along: what is refused, and where the consumer goes on."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.integration.client.committed import committed, written
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient

from busway import (
    Admin,
    CommitFailed,
    Consumer,
    GroupMetadata,
    InvalidTransactionState,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    TransactionAbortable,
)
from busway_protocol.errors import ErrorCode

pytestmark = pytest.mark.slow

FAST: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100}


class Wrong(Exception):
    """What goes wrong in a transaction."""


@pytest.fixture
async def three(transactional: Cluster, topic: str) -> TopicPartition:
    """A partition with three records."""
    async with Admin(transactional.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 1), NewTopic(f"{topic}-out", 1)])
    async with Producer(transactional.bootstrap_servers) as plain:
        for number in range(3):
            await plain.send_and_wait(topic, b"%d" % number, partition=0)
    return TopicPartition(topic, 0)


@pytest.fixture
def member(transactional: Cluster, topic: str, group: str) -> Callable[..., Consumer]:
    """Makes members of the test's group."""

    def made(*topics: str, **options: Any) -> Consumer:
        given = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
        return Consumer(*topics, bootstrap_servers=transactional.bootstrap_servers, group_id=group, **given | options)

    return made


@pytest.fixture
def sending(transactional: Cluster, topic: str) -> Producer:
    """A producer with a transactional id of the test's own."""
    return Producer(transactional.bootstrap_servers, transactional_id=f"x-{topic}", linger_ms=0)


async def test_who_was_put_out_undoes_nothing(
    transactional: Cluster, three: TopicPartition, member: Callable[..., Consumer], sending: Producer
) -> None:
    """Neither in a transaction nor by a commit, whether its group has other members or none: the broker is not even asked."""
    async with member(three.topic, max_poll_interval_ms=500, **FAST) as slow, sending:
        record = await slow.getone()
        async with member(three.topic, **FAST) as other:
            async with asyncio.timeout(patient(30)):
                while not await other.getmany(timeout_ms=100):
                    pass
            await other.commit()
            assert slow.member() == GroupMetadata(group_id=slow.member().group_id)
            assert slow.group_metadata().generation > 0
            await sending.begin_transaction()
            await sending.send_and_wait(f"{three.topic}-out", record.value)
            with pytest.raises(TransactionAbortable, match=rf"given {three.topic}-0 up since .*continue to poll"):
                await sending.send_offsets_to_transaction({three: record.offset + 1}, slow.group_metadata())
            with pytest.raises(TransactionAbortable, match="given"):
                await sending.commit_transaction()
            await sending.abort_transaction()
            with pytest.raises(CommitFailed, match=f"given up.*{three.topic}-0 were not committed"):
                await slow.commit({three: record.offset + 1})
        with pytest.raises(CommitFailed, match=f"given up.*{three.topic}-0 were not committed"):
            await slow.commit({three: record.offset + 1})
        committed_offset = await slow.committed(three)
        assert committed_offset is not None
        assert committed_offset.offset == 3
    assert await committed(transactional.bootstrap_servers, f"{three.topic}-out") == []


async def test_who_never_was_a_member_sends_nothing(
    three: TopicPartition, member: Callable[..., Consumer], sending: Producer
) -> None:
    """In a group that has no members a broker believes generation -1."""
    async with member() as consumer, sending:
        consumer.is_subscribed = lambda: True  # type: ignore[method-assign]  # as before its first join has ended
        with pytest.raises(TransactionAbortable, match="not a member of group"):
            async with sending.transaction():
                await sending.send_offsets_to_transaction({three: 1}, consumer.group_metadata())
        assert await consumer.committed(three) is None


@pytest.mark.parametrize("assigned", [False, True])
async def test_an_abort_goes_back_and_a_commit_goes_on(
    transactional: Cluster, three: TopicPartition, member: Callable[..., Consumer], sending: Producer, assigned: bool
) -> None:
    """An exception, a cancellation, an abort by hand; for who subscribes and for who assigns itself."""
    out = f"{three.topic}-out"
    async with member(max_poll_records=2) as consumer, sending, asyncio.timeout(patient(60)):
        if assigned:
            await consumer.assign([three])
        else:
            await consumer.subscribe([three.topic])

        async def passed_on() -> list[int]:
            while not (polled := await consumer.getmany(timeout_ms=1_000)):
                pass
            for record in polled[three]:
                await sending.send(out, record.value)
            return [record.offset for record in polled[three]]

        async def failing(problem: BaseException) -> None:
            async with sending.transaction(consumer):
                assert await passed_on() == [0, 1]
                raise problem

        for problem in (Wrong(), asyncio.CancelledError()):
            with pytest.raises(type(problem)):
                await failing(problem)
        await sending.begin_transaction(consumer)
        assert await passed_on() == [0, 1]
        await sending.abort_transaction()
        async with sending.transaction(consumer):
            assert await passed_on() == [0, 1]
        position = await consumer.committed(three)
        assert position is not None
        assert position.offset == 2
        async with sending.transaction(consumer):
            assert await passed_on() == [2]
        position = await consumer.committed(three)
        assert position is not None
        assert position.offset == 3
    assert await committed(transactional.bootstrap_servers, out) == [b"0", b"1", b"2"]
    assert len(await written(transactional.bootstrap_servers, out)) >= 3


async def test_a_consumer_that_does_not_fit_is_refused_in_words(
    three: TopicPartition, member: Callable[..., Consumer], sending: Producer, transactional: Cluster
) -> None:
    """With what has to be changed; and the producer can go on."""
    async with sending:
        for options, words in (
            ({"enable_auto_commit": True}, "enable_auto_commit=False is needed"),
            ({"isolation_level": "read_uncommitted"}, 'isolation_level="read_committed" is needed'),
            ({"group_id": None}, "has no group_id"),
        ):
            given = {"group_id": "g", "enable_auto_commit": False, "isolation_level": "read_committed"} | options
            async with Consumer(bootstrap_servers=transactional.bootstrap_servers, **given) as consumer:
                with pytest.raises(ValueError, match=words):
                    await sending.begin_transaction(consumer)
        async with member(three.topic) as consumer:
            await consumer.getone()
            with pytest.raises(InvalidTransactionState, match=f"records of {three.topic}-0 were handed out before"):
                async with sending.transaction(consumer):
                    pass
            await consumer.commit()
            async with sending.transaction(consumer):
                assert (await consumer.getone()).offset == 1
                with pytest.raises(InvalidTransactionState, match="committed with the transaction"):
                    await consumer.commit()


@pytest.mark.parametrize("assigned", [False, True])
async def test_offsets_of_a_consumer_that_commits_by_itself_are_refused(
    three: TopicPartition, member: Callable[..., Consumer], sending: Producer, assigned: bool
) -> None:
    """An automatic commit would write an older offset over that of the transaction."""
    async with member(enable_auto_commit=True) as consumer, sending:
        await (consumer.assign([three]) if assigned else consumer.subscribe([three.topic]))
        record = await consumer.getone()
        with pytest.raises(ValueError, match="enable_auto_commit=False is needed"):
            async with sending.transaction():
                await sending.send_offsets_to_transaction({three: record.offset + 1}, consumer.group_metadata())
        assert await consumer.committed(three) is None


@pytest.mark.parametrize("assigned", [False, True])
async def test_a_transaction_takes_no_offsets_that_a_commit_is_under_way_for(
    three: TopicPartition,
    member: Callable[..., Consumer],
    sending: Producer,
    assigned: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tried again after the transaction, the commit would take the group back to an older offset."""
    async with member() as consumer, sending:
        await (consumer.assign([three]) if assigned else consumer.subscribe([three.topic]))
        await consumer.getone()
        asked, answered = asyncio.Event(), asyncio.Event()
        group = consumer._require_group()
        commit_once = group.offsets._commit_once

        async def late(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> ErrorCode:
            asked.set()
            await answered.wait()
            return await commit_once(offsets)

        monkeypatch.setattr(group.offsets, "_commit_once", late)
        committing = asyncio.create_task(consumer.commit())
        await asked.wait()
        await consumer.getone()
        words = f"commit of {three.topic}-0 is under way"
        with pytest.raises(InvalidTransactionState, match=words):
            async with sending.transaction():
                await sending.send_offsets_to_transaction({three: 2}, consumer.group_metadata())
        with pytest.raises(InvalidTransactionState, match=words):
            await sending.begin_transaction(consumer)
        answered.set()
        await committing
        async with sending.transaction():
            await sending.send_offsets_to_transaction({three: 2}, consumer.group_metadata())
        position = await consumer.committed(three)
        assert position is not None
        assert position.offset == 2


@pytest.mark.parametrize("assigned", [False, True])
async def test_a_transaction_commits_where_latest_began(
    transactional: Cluster, three: TopicPartition, member: Callable[..., Consumer], sending: Producer, assigned: bool
) -> None:
    """Although it was handed no record: what comes while the reader is down is read afterwards."""

    async def begun() -> Consumer:
        consumer = member(auto_offset_reset="latest")
        await consumer.start()
        await (consumer.assign([three]) if assigned else consumer.subscribe([three.topic]))
        return consumer

    consumer = await begun()
    async with sending, asyncio.timeout(patient(60)):
        while await consumer.committed(three) is None:
            async with sending.transaction(consumer):
                assert await consumer.getmany(timeout_ms=50) == {}
    await consumer.abort()
    async with Producer(transactional.bootstrap_servers) as plain:
        await plain.send_and_wait(three.topic, b"3", partition=0)
    consumer = await begun()
    async with asyncio.timeout(patient(60)):
        assert (await consumer.getone()).value == b"3"
    await consumer.stop()


@pytest.mark.parametrize("reads_new", [False, True])
@pytest.mark.parametrize("commits", [False, True])
async def test_a_topic_that_is_created_again_during_a_transaction_is_read_whole(
    transactional: Cluster,
    three: TopicPartition,
    member: Callable[..., Consumer],
    sending: Producer,
    commits: bool,
    reads_new: bool,
) -> None:
    """Neither an abort nor a commit leads to an offset of the old topic."""
    async with member(three.topic, max_poll_records=1) as consumer, sending, asyncio.timeout(patient(60)):
        async with sending.transaction(consumer):
            await consumer.getone()
            await consumer.getone()
        await sending.begin_transaction(consumer)
        assert (await consumer.getone()).offset == 2
        async with Admin(transactional.bootstrap_servers) as admin:
            await admin.delete_topics([three.topic])
            await admin.create_topics([NewTopic(three.topic, 1)])
        async with Producer(transactional.bootstrap_servers) as plain:
            for number in range(10, 15):
                await plain.send_and_wait(three.topic, b"%d" % number, partition=0)
        if reads_new:
            assert (await consumer.getone()).value == b"10"
        else:
            while consumer.known_position(three) != 0:
                await asyncio.sleep(0.01)
        await (sending.commit_transaction() if commits else sending.abort_transaction())
        assert (await consumer.getone()).value == (b"11" if commits and reads_new else b"10")
        if commits:
            position = await consumer.committed(three)
            assert position is not None
            assert position.offset == (1 if reads_new else 0)
