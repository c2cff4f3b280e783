"""Transactions behind a network that fails: each request and each answer is lost in turn, and a transaction ends once, as it was asked to."""

import asyncio

import pytest
from tests.integration.client.committed import committed
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient
from tests.support.proxy import Fate, Proxy

from busway import Consumer, GroupMetadata, Producer, TopicPartition, TransactionAbortable, TransactionInDoubt
from busway.errors import DeliveryFailed, InvalidTransactionState
from busway_protocol.apis import ApiKey

pytestmark = pytest.mark.slow
TIMES = 2


def producer(proxy: Proxy, topic: str, **options: object) -> Producer:
    """Behind the proxy, with a transactional id of the test's own."""
    return Producer(proxy.address, transactional_id=f"x-{topic}", linger_ms=0, **options)


async def offset_of(cluster: Cluster, group: str, partition: TopicPartition) -> int | None:
    """What the group has committed, once nothing of it is undecided."""
    async with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, isolation_level="read_committed"
    ) as consumer:
        committed_offset = await consumer.committed(partition)
        return None if committed_offset is None else committed_offset.offset


@pytest.mark.parametrize("answers", [False, True], ids=["request", "answer"])
@pytest.mark.parametrize(
    "key",
    [
        ApiKey.FIND_COORDINATOR,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.PRODUCE,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    ],
    ids=lambda key: key.name.lower(),
)
async def test_whatever_is_lost_a_transaction_ends_once(
    transactional: Cluster, topic: str, group: str, key: ApiKey, answers: bool
) -> None:
    """The request is asked again, and the coordinator knows it again; what was committed is there once, what was aborted not at all."""
    where = TopicPartition(topic, 0)
    async with Proxy(transactional.bootstrap_servers) as proxy:
        lost = proxy.strike(Fate.CUT, key, answers=answers, times=TIMES)
        async with asyncio.timeout(patient(60)), producer(proxy, topic) as sending:
            async with sending.transaction():
                for number in range(3):
                    await sending.send_and_wait(topic, b"%d" % number, partition=0)
                await sending.send_offsets_to_transaction({where: 3}, GroupMetadata(group_id=group))
            again = proxy.strike(Fate.CUT, key, answers=answers, times=TIMES)
            await sending.begin_transaction()
            await sending.send_and_wait(topic, b"aborted", partition=0)
            await sending.send_offsets_to_transaction({where: 4}, GroupMetadata(group_id=group))
            await sending.abort_transaction()
            once_more = proxy.strike(Fate.CUT, key, answers=answers, times=TIMES)
            async with sending.transaction():
                await sending.send(topic, b"last", partition=0)
    explicit = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN}
    assert lost.count == (0 if transactional.implicit and key in explicit else TIMES)
    if key is ApiKey.END_TXN:
        assert again.count == once_more.count == TIMES
    assert await committed(transactional.bootstrap_servers, topic) == [b"0", b"1", b"2", b"last"]
    assert await offset_of(transactional, group, where) == 3


async def test_a_cancelled_commit_is_finished(transactional: Cluster, topic: str) -> None:
    """Who is cancelled while it waits for the answer is so when that has come, and the next transaction is another one."""
    async with Proxy(transactional.bootstrap_servers) as proxy, producer(proxy, topic) as sending:
        held = proxy.strike(Fate.HOLD, ApiKey.END_TXN, answers=True)

        async def work() -> None:
            async with sending.transaction():
                await sending.send(topic, b"v", partition=0)

        task = asyncio.ensure_future(work())
        await held.happened.wait()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.2)
        assert not done
        held.lift()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await committed(transactional.bootstrap_servers, topic) == [b"v"]
        async with sending.transaction():
            await sending.send(topic, b"next", partition=0)
    assert await committed(transactional.bootstrap_servers, topic) == [b"v", b"next"]


async def test_a_commit_that_is_cancelled_twice_is_finished_behind(transactional: Cluster, topic: str) -> None:
    """Its caller goes at once; the next transaction begins when it has ended, and a producer that stops sees it through."""
    async with Proxy(transactional.bootstrap_servers) as proxy, producer(proxy, topic) as sending:
        for value in (b"first", b"second"):
            await sending.begin_transaction()
            held = proxy.strike(Fate.HOLD, ApiKey.END_TXN, answers=False)
            await sending.send(topic, value, partition=0)
            task = asyncio.ensure_future(sending.commit_transaction())
            await held.happened.wait()
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(InvalidTransactionState, match="cannot be taken back"):
                await sending.abort_transaction()
            asyncio.get_running_loop().call_later(0.1, held.lift)
    assert await committed(transactional.bootstrap_servers, topic) == [b"first", b"second"]


async def test_a_commit_without_an_answer_is_in_doubt_until_it_is_asked_again(
    transactional: Cluster, topic: str
) -> None:
    """It was written, and no answer said so; an abort is refused, the same commit brings certainty."""
    async with (
        Proxy(transactional.bootstrap_servers) as proxy,
        producer(proxy, topic, delivery_timeout_ms=500, request_timeout_ms=400) as sending,
    ):
        async with sending.transaction():
            await sending.send(topic, b"first", partition=0)
        await sending.begin_transaction()
        await sending.send_and_wait(topic, b"doubtful", partition=0)
        lost = proxy.strike(Fate.CUT, ApiKey.END_TXN, answers=True)
        with pytest.raises(TransactionInDoubt, match="not known"):
            await sending.commit_transaction()
        with pytest.raises(InvalidTransactionState, match="cannot be taken back"):
            await sending.abort_transaction()
        with pytest.raises(InvalidTransactionState, match="being committed"):
            await sending.begin_transaction()
        lost.lift()
        await sending.commit_transaction()
        async with sending.transaction():
            await sending.send(topic, b"next", partition=0)
    assert await committed(transactional.bootstrap_servers, topic) == [b"first", b"doubtful", b"next"]


async def test_an_abort_without_an_answer_is_done_before_the_next_transaction(
    transactional: Cluster, topic: str
) -> None:
    """The block ends with its own error; what could not be aborted is so before anything else is begun."""
    async with (
        Proxy(transactional.bootstrap_servers) as proxy,
        producer(proxy, topic, delivery_timeout_ms=500, request_timeout_ms=400) as sending,
    ):
        lost = proxy.strike(Fate.CUT, ApiKey.END_TXN)

        async def work() -> None:
            async with sending.transaction():
                await sending.send_and_wait(topic, b"aborted", partition=0)
                raise LookupError

        with pytest.raises(LookupError):
            await work()
        lost.lift()
        async with sending.transaction():
            await sending.send(topic, b"next", partition=0)
    assert await committed(transactional.bootstrap_servers, topic) == [b"next"]


@pytest.mark.parametrize("answers", [False, True], ids=["request", "answer"])
async def test_a_record_that_is_given_up_takes_its_transaction_with_it(
    transactional: Cluster, topic: str, answers: bool
) -> None:
    """Whether or not it was written; the next transaction numbers its records from the start, and none of them passes for a repetition."""
    async with (
        Proxy(transactional.bootstrap_servers) as proxy,
        producer(proxy, topic, delivery_timeout_ms=500) as sending,
    ):
        async with sending.transaction():
            await sending.send(topic, b"first", partition=0)
        await sending.begin_transaction()
        await sending.send_and_wait(topic, b"lost", partition=0)
        swallowed = proxy.strike(Fate.SWALLOW, ApiKey.PRODUCE, answers=answers, times=1)
        with pytest.raises(DeliveryFailed, match="whether it was written is not known"):
            await sending.send_and_wait(topic, b"given up", partition=0)
        assert swallowed.count == 1
        with pytest.raises(TransactionAbortable, match="not acknowledged within 500 ms"):
            await sending.commit_transaction()
        proxy.cut()
        await sending.abort_transaction()
        for value in (b"next", b"last"):
            async with sending.transaction():
                await sending.send(topic, value, partition=0)
    assert await committed(transactional.bootstrap_servers, topic) == [b"first", b"next", b"last"]


async def test_a_transaction_whose_only_record_never_came_can_be_aborted(transactional: Cluster, topic: str) -> None:
    """The coordinator may know nothing of it, at first and behind another one."""
    async with (
        Proxy(transactional.bootstrap_servers) as proxy,
        producer(proxy, topic, delivery_timeout_ms=500) as sending,
    ):
        await sending.partitions_for(topic)
        for value in (b"first", b"second"):
            swallowed = proxy.strike(Fate.SWALLOW, ApiKey.PRODUCE, times=1)
            await sending.begin_transaction()
            with pytest.raises(DeliveryFailed, match="whether it was written is not known"):
                await sending.send_and_wait(topic, b"lost", partition=0)
            assert swallowed.count == 1
            proxy.cut()
            await sending.abort_transaction()
            async with sending.transaction():
                await sending.send(topic, value, partition=0)
    assert await committed(transactional.bootstrap_servers, topic) == [b"first", b"second"]


async def test_offsets_whose_sending_was_cancelled_cannot_be_committed(
    transactional: Cluster, topic: str, group: str
) -> None:
    """It is unknown whether they are part of the transaction."""
    async with Proxy(transactional.bootstrap_servers) as proxy, producer(proxy, topic) as sending:
        await sending.begin_transaction()
        await sending.send_and_wait(topic, b"v", partition=0)
        held = proxy.strike(Fate.HOLD, ApiKey.TXN_OFFSET_COMMIT, answers=True)
        offsets = {TopicPartition(topic, 0): 1}
        task = asyncio.ensure_future(sending.send_offsets_to_transaction(offsets, GroupMetadata(group_id=group)))
        await held.happened.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held.lift()
        with pytest.raises(TransactionAbortable, match="offsets was cancelled"):
            await sending.commit_transaction()
        await sending.abort_transaction()
    assert await committed(transactional.bootstrap_servers, topic) == []
    assert await offset_of(transactional, group, TopicPartition(topic, 0)) is None
