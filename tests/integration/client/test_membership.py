"""A member whose event loop is busy is alive; one whose reader has gone for good is not."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.busway_process import BuswayProcess
from tests.support.patience import patient, patient_ms

from busway import Consumer, Producer, TopicPartition
from busway.consumer.heartbeat_thread import _thread

pytestmark = pytest.mark.slow
SESSION_S = 0.5
OPTIONS: dict[str, Any] = {
    "heartbeat_interval_ms": 50,
    "session_timeout_ms": int(SESSION_S * 1000),
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BuswayProcess]:
    """A broker whose event loop is not the test's."""
    running = BuswayProcess({"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"})
    running.start()
    yield running
    running.stop()


async def one_record(broker: BuswayProcess, topic: str) -> None:
    """A topic with it."""
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"v")


async def test_a_reader_that_computes_for_longer_than_the_session_stays_a_member(
    broker: BuswayProcess, topic: str, group: str
) -> None:
    """No other member is given its record, and its commit counts."""
    await one_record(broker, topic)
    async with Consumer(topic, bootstrap_servers=broker.bootstrap_servers, group_id=group, **OPTIONS) as consumer:
        record = await consumer.getone()
        before = consumer.member_id()
        time.sleep(2 * SESSION_S)
        await consumer.commit({TopicPartition(topic, 0): record.offset + 1})
        assert consumer.member_id() == before


async def test_a_reader_that_never_comes_back_leaves_its_group(
    broker: BuswayProcess, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Within max_poll_interval_ms others have its partitions, and the log says why; when it asks again, it is in again."""
    await one_record(broker, topic)
    options = {
        **OPTIONS,
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": group,
        "session_timeout_ms": patient_ms(30_000),
    }
    async with Consumer(topic, max_poll_interval_ms=200, **options) as gone:
        await gone.getone()
        async with Consumer(topic, **options) as other, asyncio.timeout(patient(20)):
            await other.getone()
            assert "max_poll_interval_ms=200" in caplog.text
        async with asyncio.timeout(patient(20)):
            while not gone.assignment():
                await gone.getmany(timeout_ms=20)


async def test_the_thread_ends_with_the_last_consumer(broker: BuswayProcess, topic: str, group: str) -> None:
    """And the next one begins another."""
    await one_record(broker, topic)
    for _ in range(2):
        async with Consumer(topic, bootstrap_servers=broker.bootstrap_servers, group_id=group, **OPTIONS) as consumer:
            await consumer.getone()
            assert _thread._loop is not None
        assert _thread._loop is None
