"""A full disk under the metadata log: every request that would change the metadata is answered, and works when there is room."""

import asyncio
import inspect

import pytest
from tests.integration.broker.test_hang_up import CASES
from tests.support.patience import patient

from busway import Producer
from busway.consumer.snapshot import read_to_end
from busway_bus.handlers.common.context import Peer, RequestContext
from busway_bus.handlers.common.topic_creation import create_topic
from busway_bus.handlers.registry import HANDLERS
from busway_bus.log.partition_log import PartitionLog
from busway_bus.replication.log_manager import LogManager
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode


def codes(answer) -> set[int]:
    """Every error code in an answer."""
    if isinstance(answer, list):
        return set().union(*map(codes, answer))
    if not hasattr(answer, "__slots__"):
        return set()
    error_codes = {answer.error_code} if hasattr(answer, "error_code") else set()
    return error_codes.union(*(codes(getattr(answer, name)) for name in answer.__slots__))


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (ApiKey.CREATE_TOPICS, ErrorCode.KAFKA_STORAGE_ERROR),
        (ApiKey.DELETE_TOPICS, ErrorCode.KAFKA_STORAGE_ERROR),
        (ApiKey.CREATE_PARTITIONS, ErrorCode.KAFKA_STORAGE_ERROR),
        (ApiKey.ALTER_CONFIGS, ErrorCode.KAFKA_STORAGE_ERROR),
        (ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_no_room_for_metadata_is_an_answer_and_not_the_end(key, code, monkeypatch):
    """Each got a traceback in the broker's log and a closed connection."""
    async with LocalCluster(properties={"offsets.topic.num.partitions": "1"}) as cluster:
        node = cluster.node
        await create_topic(node.services, "t1", partitions=1, replication_factor=1)
        api = HANDLERS[int(key)]
        context = RequestContext(
            api_version=api.max_version,
            client_id=None,
            client_host="local",
            peer=Peer(),
            advertised=next(iter(node.advertised.values())),
            node=node.services,
        )

        async def ask():
            answer = api.handle(CASES[key](1), context)
            return codes(await answer if inspect.isawaitable(answer) else answer)

        def full(*_, **__):
            raise OSError(28, "No space left on device")

        before = node.services.image
        monkeypatch.setattr(node.services.metadata._log, "append_own", full)
        assert code in await ask()
        assert node.services.image is before
        monkeypatch.undo()
        assert await ask() == {ErrorCode.NONE}
        assert not node.failed.is_set()


@pytest.mark.slow
async def test_a_checkpoint_that_fails_at_every_turn_is_told_once(monkeypatch, caplog):
    """One line when it begins and one when it works again; it was two a second for as long as the disk failed."""
    failed, worked = asyncio.Event(), asyncio.Event()
    turns = 0

    async def checkpoint(_):
        nonlocal turns
        turns += 1
        if turns == 4:
            failed.set()
        if turns <= 4:
            raise OSError(5, "Input/output error")
        if turns == 6:
            worked.set()

    monkeypatch.setattr(LogManager, "checkpoint", checkpoint)
    async with LocalCluster(properties={"replica.high.watermark.checkpoint.interval.ms": "100"}):
        async with asyncio.timeout(patient(20)):
            await failed.wait()
            await worked.wait()
    assert caplog.text.count("checkpointing failed") == 1
    assert caplog.text.count("checkpointing works again") == 1


@pytest.mark.slow
async def test_a_start_without_room_serves_with_the_registration_of_the_one_before(monkeypatch, caplog):
    """The addresses are the same; with room it registers, and says so once that it could not. Elsewhere it would send clients away."""
    async with LocalCluster() as cluster:
        before = cluster.node.services.image.brokers[1]
        await cluster.stop()

        def full(*_, **__):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "append_own", full)
            await cluster.start()
            await cluster.node._reopen()
            assert cluster.node.services.image.brokers[1] == before
            assert caplog.text.count("cannot be registered yet") == 1
            await cluster.stop()
            cluster._port = 0
            with pytest.raises(OSError, match="cannot be registered"):
                await cluster.start()
            cluster._port = before.addresses["PLAINTEXT"].port
            await cluster.start()
        await cluster.node._reopen()
        assert cluster.node.services.image.brokers[1].epoch > before.epoch


@pytest.mark.slow
async def test_a_full_disk_under_a_partition_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line of the broker's and one of the producer's while records wait; with room they are written, each once."""
    refused = asyncio.Event()
    count = 0

    async with LocalCluster() as cluster, Producer(cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"0", partition=0)

        def full(*_: object, **__: object) -> None:
            nonlocal count
            count += 1
            if count == 5:
                refused.set()
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "append_inspected", full)
            sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(1, 4)]
            async with asyncio.timeout(patient(20)):
                await refused.wait()
        assert [(await future).offset for future in sent] == [1, 2, 3]
        values = [record.value async for record in read_to_end(cluster.bootstrap_servers, "t")]
    assert values == [b"0", b"1", b"2", b"3"]
    refusals = [record.getMessage() for record in caplog.records if "No space left" in record.getMessage()]
    assert [line.partition(":")[0] for line in refusals] == [refusals[0].partition(":")[0], "refused, and sent again"]
    assert refusals[0].startswith("cannot write ")
    assert {record.levelname for record in caplog.records if "No space left" in record.getMessage()} == {
        "ERROR",
        "WARNING",
    }
    assert caplog.text.count("appends work again") == 1
