"""Transactions that take the offsets of a consumer along: what is refused, and where the consumer goes on."""

import asyncio
from collections.abc import Callable
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
    Producer,
    TopicPartition,
    TransactionAbortable,
)

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
            with pytest.raises(TransactionAbortable, match=rf"given {three.topic}-0 up since .*go on polling"):
                await sending.send_offsets_to_transaction({three: record.offset + 1}, slow.group_metadata())
            with pytest.raises(TransactionAbortable, match="given"):
                await sending.commit_transaction()
            await sending.abort_transaction()
            with pytest.raises(CommitFailed, match=f"given up.*{three.topic}-0 were not committed"):
                await slow.commit({three: record.offset + 1})
        with pytest.raises(CommitFailed, match=f"given up.*{three.topic}-0 were not committed"):
            await slow.commit({three: record.offset + 1})
        found = await slow.committed(three)
        assert found is not None
        assert found.offset == 3
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
            while not (found := await consumer.getmany(timeout_ms=1_000)):
                pass
            for record in found[three]:
                await sending.send(out, record.value)
            return [record.offset for record in found[three]]

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
        found = await consumer.committed(three)
        assert found is not None
        assert found.offset == 2
        async with sending.transaction(consumer):
            assert await passed_on() == [2]
        found = await consumer.committed(three)
        assert found is not None
        assert found.offset == 3
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
