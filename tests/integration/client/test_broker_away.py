"""A coordinator that is away for a while is no news about the group: no member joins again, none gives anything up."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.patience import patient, patient_ms
from tests.support.proxy import Fate, Proxy

from busway import Consumer, Producer, RebalanceListener, TopicPartition
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode

pytestmark = pytest.mark.slow
FAST: dict[str, Any] = {
    "allow_auto_create_topics": True,
    "heartbeat_interval_ms": 20,
    "session_timeout_ms": patient_ms(20_000),
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
}


class Listener(RebalanceListener):
    """Records its notifications."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def on_partitions_assigned(self, assigned: object) -> None:
        """Partitions came."""
        self.events.append("assigned")

    async def on_partitions_revoked(self, revoked: object) -> None:
        """Partitions go."""
        self.events.append("revoked")

    async def on_partitions_lost(self, lost: object) -> None:
        """Partitions are gone."""
        self.events.append("lost")


@pytest.fixture
async def proxy(node: LocalCluster) -> AsyncIterator[Proxy]:
    """The way to the node."""
    async with Proxy(node.bootstrap_servers) as running:
        yield running


async def send(proxy: Proxy, topic: str, value: bytes) -> None:
    """One record."""
    async with Producer(proxy.address) as producer:
        await producer.send_and_wait(topic, value, b"k", partition=0)


async def goes_on(consumer: Consumer, proxy: Proxy, topic: str, value: bytes, joins: int) -> None:
    """What is sent now is read and committed, by a member that never joined again."""
    await send(proxy, topic, value)
    async with asyncio.timeout(patient(20)):
        record = await consumer.getone()
        assert record.value == value
        await consumer.commit()
    assert await consumer.committed(TopicPartition(topic, 0)) is not None
    assert proxy.requests.count(ApiKey.JOIN_GROUP) == joins


async def joined(consumer: Consumer, proxy: Proxy, topic: str) -> tuple[str, int, int]:
    """Who the consumer is once it has read and shown that it lives; the member id, the generation, and how many joins that took."""
    await send(proxy, topic, b"first")
    assert (await consumer.getone()).value == b"first"
    await proxy.asked(ApiKey.HEARTBEAT)
    assert consumer._group is not None
    membership = consumer._group.membership
    return membership.member_id, membership.generation, proxy.requests.count(ApiKey.JOIN_GROUP)


def same(consumer: Consumer, member_id: str, generation: int) -> bool:
    """Whether it is still that member."""
    assert consumer._group is not None
    membership = consumer._group.membership
    return (membership.member_id, membership.generation) == (member_id, generation)


@pytest.mark.parametrize("fault", ["refused", "cut", "frozen", "restarted"])
async def test_a_broker_that_is_away_is_no_rebalance(
    fault: str, node: LocalCluster, proxy: Proxy, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The member keeps its id, its generation and its partitions; its listener hears of nothing."""
    listener = Listener()
    async with Consumer(topic, bootstrap_servers=proxy.address, group_id=group, listener=listener, **FAST) as consumer:
        member_id, generation, joins = await joined(consumer, proxy, topic)
        if fault == "cut":
            lost = proxy.strike(Fate.CUT, ApiKey.HEARTBEAT, answers=True, times=3)
            await proxy.asked(ApiKey.HEARTBEAT, proxy.requests.count(ApiKey.HEARTBEAT) + 5)
            assert lost.count == 3
        elif fault == "frozen":
            held = proxy.strike(Fate.HOLD)
            await held.happened.wait()
            held.lift()
        else:
            await proxy.refuse()
            if fault == "restarted":
                await node.crash()
                await node.start()
            async with asyncio.timeout(patient(20)):  # until the member has noticed
                while "keeps its partitions" not in caplog.text and not listener.events[1:]:
                    await asyncio.sleep(0.01)
            await proxy.accept()
        await goes_on(consumer, proxy, topic, b"second", joins)
        assert same(consumer, member_id, generation)
        assert listener.events == ["assigned"]


@pytest.mark.parametrize("api", [ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT])
@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
    ids=lambda code: code.name,
)
async def test_a_coordinator_that_moves_is_looked_up_and_asked_again(
    code: ErrorCode, api: ApiKey, proxy: Proxy, topic: str, group: str
) -> None:
    """In the name of the same member and generation."""
    listener = Listener()
    async with Consumer(topic, bootstrap_servers=proxy.address, group_id=group, listener=listener, **FAST) as consumer:
        member_id, generation, joins = await joined(consumer, proxy, topic)
        left = 3

        def refuse(answer: Any) -> None:
            nonlocal left
            if left:
                left -= 1
                if api is ApiKey.HEARTBEAT:
                    answer.error_code = code
                else:
                    answer.topics[0].partitions[0].error_code = code

        proxy.edits[api] = refuse
        if api is ApiKey.HEARTBEAT:
            await proxy.asked(api, proxy.requests.count(api) + 5)
        await goes_on(consumer, proxy, topic, b"second", joins)
        assert left == 0
        assert same(consumer, member_id, generation)
        assert listener.events == ["assigned"]


async def test_the_coordinators_own_word_ends_a_session(proxy: Proxy, topic: str, group: str) -> None:
    """A member that the group does not know any more learns that its partitions are lost, and joins again."""
    listener = Listener()
    options = {**FAST, "session_timeout_ms": 200}  # after which the broker forgets the first member, too
    async with Consumer(
        topic, bootstrap_servers=proxy.address, group_id=group, listener=listener, **options
    ) as consumer:
        member_id, _, joins = await joined(consumer, proxy, topic)
        left = 1

        def forget(answer: Any) -> None:
            nonlocal left
            if left:
                left -= 1
                answer.error_code = ErrorCode.UNKNOWN_MEMBER_ID

        proxy.edits[ApiKey.HEARTBEAT] = forget
        await proxy.asked(ApiKey.JOIN_GROUP, joins + 1)
        async with asyncio.timeout(patient(20)):
            while listener.events != ["assigned", "lost", "assigned"]:
                await consumer.getmany(timeout_ms=20)
        assert not same(consumer, member_id, 1)


async def test_a_commit_during_a_rebalance_is_made_after_it(proxy: Proxy, topic: str, group: str) -> None:
    """What a cooperative member keeps through a rebalance it commits in the new generation."""
    options = {**FAST, "partition_assignment_strategy": ("cooperative-sticky",)}
    async with Consumer(topic, bootstrap_servers=proxy.address, group_id=group, **options) as consumer:
        await joined(consumer, proxy, topic)
        refused = asyncio.Event()

        def refuse(answer: Any) -> None:
            if not refused.is_set():
                answer.topics[0].partitions[0].error_code = ErrorCode.REBALANCE_IN_PROGRESS
                refused.set()

        proxy.edits[ApiKey.OFFSET_COMMIT] = refuse
        held = proxy.strike(Fate.HOLD, ApiKey.JOIN_GROUP, answers=True)
        async with Consumer(topic, bootstrap_servers=proxy.target, group_id=group, **options):
            await held.happened.wait()
            committing = asyncio.ensure_future(consumer.commit())
            await refused.wait()
            assert not committing.done()
            held.lift()
            await committing
            committed = await consumer.committed(TopicPartition(topic, 0))
            assert committed is not None
            assert committed.offset == 1


async def test_an_automatic_commit_outlasts_an_outage(proxy: Proxy, topic: str) -> None:
    """Longer than the request timeout; reading goes on meanwhile, and the offsets are committed after it."""
    options: dict[str, Any] = {
        **FAST,
        "enable_auto_commit": True,
        "auto_commit_interval_ms": 20,
        "request_timeout_ms": 200,
    }
    async with (
        asyncio.timeout(patient(30)),
        Consumer(topic, bootstrap_servers=proxy.address, group_id="g", **options) as consumer,
    ):
        lost = proxy.strike(Fate.CUT, ApiKey.OFFSET_COMMIT)
        count = 0
        while lost.count < 15:  # retries follow each other by 50 ms and more
            await send(proxy, topic, b"%d" % count)
            assert (await consumer.getone()).value == b"%d" % count
            count += 1
        lost.lift()
        while (at := await consumer.committed(TopicPartition(topic, 0))) is None or at.offset < count - 1:
            await consumer.getmany(timeout_ms=20)
