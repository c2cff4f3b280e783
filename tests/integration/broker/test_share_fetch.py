"""ShareFetch and ShareAcknowledge on a real node: what members get, who waits, and what becomes of what was not kept."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.integration.broker.share_probe import ShareRun, batch, share_run
from tests.integration.broker.share_scenarios import SCENARIOS, Scenario
from tests.integration.broker.share_states_probe import without_share_groups
from tests.integration.broker.test_transactional_batches import Coordinator
from tests.support.raw_client import RawClient
from tests.support.share_state import MemoryPersister

from busway_bus.metadata.group_settings import group_settings
from busway_bus.metadata.image import ClusterImage
from busway_bus.share import manager
from busway_bus.share.manager import SharePartitions
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.cluster import ApiVersionsRequest
from busway_protocol.messages.share_groups import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from busway_protocol.messages.topics import DeleteTopicsRequest
from busway_protocol.messages.transactions import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

pytestmark = pytest.mark.slow
GROUP: dict[str, Any] = {"share.auto.offset.reset": "earliest"}


def shares_of(
    cluster: LocalCluster, persister: MemoryPersister, group: dict[str, Any] | None = None
) -> SharePartitions:
    """The node's, with settings of groups."""
    assert cluster.node is not None
    shares = cluster.node.services.shares
    others = group_settings(cluster.node.config, ClusterImage)
    own = {**GROUP, **(group or {})}
    shares.persister = persister
    shares.setting = lambda group_id, name: own[name] if name in own else others(group_id, name)
    return shares


@pytest.fixture
def persister(cluster: LocalCluster) -> MemoryPersister:
    """Where the node keeps share partitions."""
    kept = MemoryPersister()
    shares_of(cluster, kept)
    return kept


@pytest.fixture
async def run(cluster: LocalCluster, persister: MemoryPersister) -> AsyncIterator[ShareRun]:
    """A topic, and who asks."""
    async with share_run(cluster.bootstrap_servers) as running:
        yield running


def last_answer(run: ShareRun) -> Any:
    """The last answer."""
    return run.log[-1][1]


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_scenarios_come_to_their_end(scenario: Scenario, run: ShareRun) -> None:
    """Those that are compared with Apache Kafka: no call hangs, none ends the connection, and something is acquired."""
    await scenario(run)
    assert any(kept[2] and any(partition[3] for partition in kept[2]) for _, kept in run.log if len(kept) == 3)


async def test_told_of_where_share_groups_are_in_force() -> None:
    """Without share.version no client sees the calls, and who makes them all the same is refused by name."""
    async with LocalCluster() as cluster, share_run(cluster.bootstrap_servers) as run:
        await without_share_groups(cluster.bootstrap_servers)
        answer = await run.admin.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
        assert not {ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE} & {api.api_key for api in answer.api_keys}
        member = await run.member("a")
        await member.fetch("fetches", epoch=0)
        assert last_answer(run)[0] == "UNSUPPORTED_VERSION"
        await member.acknowledge("acknowledges", epoch=1)
        assert last_answer(run)[0] == "UNSUPPORTED_VERSION"


async def test_what_no_group_has_begun_is_given_to_nobody(cluster: LocalCluster) -> None:
    """Who has joined no group gets nothing: what cannot be kept is not given away."""
    async with share_run(cluster.bootstrap_servers) as run:
        await run.produce(batch(1))
        member = await run.member("a")
        await member.fetch("fetches")
        assert last_answer(run)[2] == [(0, "COORDINATOR_NOT_AVAILABLE", "NONE", [], [])]


async def test_a_fetch_waits_for_records(run: ShareRun) -> None:
    """It is answered when some come, not when its time is over; who waits longest gets them."""
    a, b = await run.member("a"), await run.member("b")
    await a.fetch("opens", wait_ms=0)
    await b.fetch("opens", wait_ms=0)
    first = asyncio.create_task(a.fetch("waits", wait_ms=9_000))
    await asyncio.sleep(0)
    second = asyncio.create_task(b.fetch("waits", wait_ms=9_000))
    await run.produce(batch(1))
    done, _ = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    await run.produce(batch(1))
    await asyncio.wait([first, second])
    assert sorted(kept[2][0][3] for _, kept in run.log[-2:]) == [[(0, 0, 1)], [(1, 1, 1)]]


async def test_a_fetch_waits_for_bytes(run: ShareRun) -> None:
    """With min_bytes one batch is not enough, two are."""
    a = await run.member("a")
    await a.fetch("opens", wait_ms=0)
    waiting = asyncio.create_task(a.fetch("waits", wait_ms=9_000, min_bytes=100))
    await run.produce(batch(1), batch(1))
    await waiting
    assert last_answer(run)[2][0][3] == [(0, 1, 1)]


async def test_an_acknowledgement_is_kept_before_it_is_answered(run: ShareRun, persister: MemoryPersister) -> None:
    """No response comes before; a fetch that carries it waits for it as well."""
    a = await run.member("a")
    await run.produce(batch(4))
    await a.fetch("takes")
    persister.pace.clear()
    answers = [asyncio.create_task(a.acknowledge("half", (0, 1, [1])))]
    await persister.asked.wait()
    assert not persister.writes
    assert not answers[0].done()
    persister.pace.set()
    await asyncio.gather(*answers)
    assert [batch.delivery_state for batch in persister.writes[0].batches] == [2]
    await a.fetch("the rest", (2, 3, [1]), wait_ms=50)
    assert last_answer(run)[2] == [(0, "NONE", "NONE", [], [])]
    assert len(persister.writes) == 2


@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (ErrorCode.NOT_COORDINATOR, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.FENCED_LEADER_EPOCH, "NOT_LEADER_OR_FOLLOWER"),
        (ErrorCode.FENCED_STATE_EPOCH, "NOT_LEADER_OR_FOLLOWER"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ErrorCode.INVALID_REQUEST, "UNKNOWN_SERVER_ERROR"),
    ],
)
async def test_what_cannot_be_kept_does_not_hold(
    code: ErrorCode, answered: str, run: ShareRun, persister: MemoryPersister
) -> None:
    """The member gets the error, and has its records still, or they come again where another broker leads, or what was kept is forgotten."""
    a = await run.member("a")
    await run.produce(batch(2))
    await a.fetch("takes")
    persister.problems = [KafkaError(code)]
    await a.acknowledge("is not kept", (0, 1, [1]))
    assert last_answer(run) == ("NONE", [(0, answered)])
    if answered == "COORDINATOR_NOT_AVAILABLE":
        await a.acknowledge("is kept", (0, 1, [1]))
        assert last_answer(run) == ("NONE", [(0, "NONE")])
        return
    await a.fetch("from the beginning")
    assert last_answer(run)[2][0][3] == [(0, 1, 1)]


async def test_loading_that_fails_is_told_and_tried_again(run: ShareRun, persister: MemoryPersister) -> None:
    """The fetch that met it is answered at once; the next one loads again."""
    a = await run.member("a")
    await run.produce(batch(2))
    persister.problems = [KafkaError(ErrorCode.NOT_COORDINATOR)]
    await a.fetch("fails", wait_ms=9_000)
    assert last_answer(run)[2] == [(0, "COORDINATOR_NOT_AVAILABLE", "NONE", [], [])]
    await a.fetch("takes")
    assert last_answer(run)[2][0][3] == [(0, 1, 1)]


async def test_a_connection_that_drops_frees_its_records(run: ShareRun) -> None:
    """Another member that waits gets them at once, counted."""
    a, b = await run.member("a"), await run.member("b")
    await run.produce(batch(3))
    await a.fetch("takes")
    await b.fetch("opens", wait_ms=0)
    waiting = asyncio.create_task(b.fetch("waits", wait_ms=9_000))
    await a.client.__aexit__(None, None, None)
    await waiting
    assert last_answer(run)[2][0][3] == [(0, 2, 2)]


async def test_a_fetch_whose_client_is_gone_takes_nothing(cluster: LocalCluster, run: ShareRun) -> None:
    """What comes after its connection has dropped is for those who are there."""
    assert cluster.node is not None
    a, b = await run.member("a"), await run.member("b")
    await b.fetch("opens", wait_ms=0)
    await a.fetch("opens", wait_ms=0)
    waiting = asyncio.create_task(a.fetch("waits", wait_ms=9_000))
    await asyncio.sleep(0)
    await a.client.drained()
    await run.produce(batch(1), partition=1)
    await a.client.__aexit__(None, None, None)
    while len(cluster.node.services.shares.sessions) > 1:
        await asyncio.sleep(0)
    await run.produce(batch(1))
    await b.fetch("takes", wait_ms=9_000)
    assert last_answer(run)[2][0][3] == [(0, 0, 1)]
    with pytest.raises(AssertionError):
        await waiting


async def test_locks_end(cluster: LocalCluster, persister: MemoryPersister) -> None:
    """A member that says nothing loses its records to one that waits; renewed ones it keeps."""
    shares_of(cluster, persister, {"share.record.lock.duration.ms": 300})
    async with share_run(cluster.bootstrap_servers) as run:
        a, b = await run.member("a"), await run.member("b")
        await run.produce(batch(2), batch(2))
        await a.fetch("takes", batch_size=2)
        await b.fetch("opens", wait_ms=0)
        waiting = asyncio.create_task(b.fetch("waits", wait_ms=9_000, max_records=2))
        shares_of(cluster, persister, {"share.record.lock.duration.ms": 60_000})
        await a.acknowledge("renews", (0, 1, [4]), renew=True)
        await waiting
        assert last_answer(run)[2][0][3] == [(2, 3, 2)]
        assert persister.writes[-1].batches[-1].delivery_state == 0


async def test_locks_that_have_become_shorter_end_in_time(cluster: LocalCluster, persister: MemoryPersister) -> None:
    """A long lock that a member has does not keep a shorter one of the same partition."""
    shares_of(cluster, persister, {"share.record.lock.duration.ms": 60_000})
    async with share_run(cluster.bootstrap_servers) as run:
        await run.produce(batch(1), batch(1))
        a, b = await run.member("a"), await run.member("b")
        await a.fetch("takes one for long", max_records=1)
        shares_of(cluster, persister, {"share.record.lock.duration.ms": 300})
        await a.fetch("takes one for a moment", max_records=1)
        await b.fetch("opens", wait_ms=0)
        await b.fetch("waits", wait_ms=9_000)
        assert last_answer(run)[2][0][3] == [(1, 1, 2)]


@pytest.mark.parametrize(
    ("reset", "first"),
    [("latest", 3), ("earliest", 0), ("by_duration:PT1H", 3), ("by_duration:P20000D", 0)],
)
async def test_where_a_group_begins(reset: str, first: int, cluster: LocalCluster, persister: MemoryPersister) -> None:
    """share.auto.offset.reset; where nothing is as young as a duration says, behind what is there."""
    shares_of(cluster, persister, {"share.auto.offset.reset": reset})
    async with share_run(cluster.bootstrap_servers) as run:
        await run.produce(batch(3))
        a = await run.member("a")
        await a.fetch("loads", wait_ms=100)
        await run.produce(batch(1))
        await a.fetch("takes")
        acquired = [part for _, kept in run.log for partition in kept[2] for part in partition[3]]
        assert (acquired[0][0], acquired[-1][1]) == (first, 3)


async def test_a_deleted_topic_lets_go(cluster: LocalCluster, run: ShareRun) -> None:
    """A waiting member gets the error; what was known of it is forgotten."""
    assert cluster.node is not None
    a = await run.member("a")
    await run.produce(batch(1))
    await a.fetch("takes")
    waiting = asyncio.create_task(a.fetch("waits", wait_ms=9_000))
    await asyncio.sleep(0)
    await run.admin.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 5)
    await waiting
    assert last_answer(run)[2][0][1] in {"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_ID"}
    await a.acknowledge("of what is gone", (0, 0, [1]))
    assert last_answer(run) == ("NONE", [(0, "UNKNOWN_TOPIC_ID")])
    assert not cluster.node.services.shares._shares


async def test_the_last_member_takes_all_along(
    cluster: LocalCluster, run: ShareRun, persister: MemoryPersister
) -> None:
    """When its last session ends nothing of a group stays in memory; the next one finds what is kept."""
    assert cluster.node is not None
    a = await run.member("a")
    await run.produce(batch(3))
    await a.fetch("takes")
    await a.acknowledge("one, and ends", (0, 0, [1]), epoch=-1)
    while cluster.node.services.shares._shares:
        await asyncio.sleep(0)
    assert cluster.node.services.shares._held == 0
    a.epoch = 0
    await a.fetch("again")
    assert last_answer(run)[2][0][3] == [(1, 2, 2)]


async def test_as_many_sessions_as_allowed(cluster: LocalCluster) -> None:
    """One more is refused after its wait, and let in when another has ended."""
    async with LocalCluster(properties={"group.share.max.share.sessions": "1", "group.share.max.size": "1"}) as small:
        shares_of(small, MemoryPersister())
        async with share_run(small.bootstrap_servers) as run:
            a, b = await run.member("a"), await run.member("b")
            await a.fetch("opens", wait_ms=0)
            await b.fetch("is refused", epoch=0, wait_ms=10)
            assert last_answer(run)[0] == "SHARE_SESSION_LIMIT_REACHED"
            await a.fetch("ends", epoch=-1)
            await b.fetch("is let in", wait_ms=0)
            assert last_answer(run)[0] == "NONE"


async def test_a_group_does_not_take_all_the_memory(run: ShareRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its bound it gets nothing new, but what it has it can finish."""
    monkeypatch.setattr(manager, "SHARE_GROUP_RECORDS_MAX", 5)
    a = await run.member("a")
    await run.produce(batch(5), batch(5))
    await a.fetch("takes", max_records=5)
    await a.fetch("no more", wait_ms=20)
    assert last_answer(run)[2] == []
    await a.fetch("goes on", (0, 4, [1]))
    await a.fetch("and on", wait_ms=50)
    assert [(5, 9, 1)] in [partition[3] for _, kept in run.log[-2:] for partition in kept[2]]


async def test_share_partitions_nobody_uses_make_room(run: ShareRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all in use one more is refused; one that is idle gives way."""
    monkeypatch.setattr(manager, "SHARE_PARTITIONS_MAX", 1)
    a = await run.member("a")
    await run.produce(batch(1))
    await run.produce(batch(1), partition=1)
    await a.fetch("takes")
    await a.fetch("is refused", partitions=(1,), forget=(0,))
    assert last_answer(run)[2] == [(1, "COORDINATOR_NOT_AVAILABLE", "NONE", [], [])]
    await a.acknowledge("frees it", (0, 0, [1]))
    await a.fetch("is let in", partitions=())
    assert last_answer(run)[2][0][3] == [(0, 0, 1)]


async def test_unknown_topics(run: ShareRun) -> None:
    """An unknown id has its own error code."""
    a = await run.member("a")
    await a.fetch("opens", wait_ms=0)
    await a.acknowledge("of an unknown topic", (0, 0, [1]), topic_id=UUID(int=5))
    assert last_answer(run) == ("NONE", [(0, "UNKNOWN_TOPIC_ID")])
    run.topic_id = UUID(int=5)
    await a.fetch("of an unknown topic")
    assert (0, "UNKNOWN_TOPIC_ID", "NONE", [], []) in last_answer(run)[2]
    assert isinstance(a.client, RawClient)


async def test_records_that_were_rolled_back(cluster: LocalCluster, persister: MemoryPersister) -> None:
    """A group that reads committed gets nothing of an open transaction, nor of one that was aborted; another gets all."""
    assert cluster.node is not None
    cluster.node.services.replicas.verifications.verifier = Coordinator()
    shares_of(cluster, persister, {"share.isolation.level": "read_committed"})
    async with share_run(cluster.bootstrap_servers) as run:
        await run.produce(batch(2))
        for producer, committed in ((7, False), (8, True)):
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            await run.produce(batch(3, **options), transactional_id=f"x{producer}")
            if producer == 7:
                a = await run.member("a")
                await a.fetch("before the end")
                assert last_answer(run)[2][0][3] == [(0, 1, 1)]
            await end(run, producer, committed=committed)
        await run.produce(batch(1))
        await a.fetch("after the end", (0, 1, [1]))
        assert last_answer(run)[2][0][3] == [(5, 10, 1)]
        await a.acknowledge("all, and the markers are gaps", (5, 10, [0, 1, 1, 1, 0, 1]))
        (kept,) = persister.kept.values()
        assert kept.start_offset in {2, 5}
        shares_of(cluster, persister, {"share.isolation.level": "read_uncommitted"})
        run.group_id = "h"
        b = await run.member("b")
        await b.fetch("everything")
        assert last_answer(run)[2][0][3] == [(0, 10, 1)]


async def test_a_node_that_stops_keeps_what_it_was_told(tmp_path: Path, persister: MemoryPersister) -> None:
    """An acknowledgement that is being written when the node stops is written."""
    async with LocalCluster(str(tmp_path)) as cluster:
        kept = MemoryPersister()
        shares_of(cluster, kept)
        async with share_run(cluster.bootstrap_servers) as run:
            await run.produce(batch(2))
            a = await run.member("a")
            await a.fetch("takes")
            kept.pace.clear()
            acknowledging = asyncio.create_task(a.acknowledge("all", (0, 1, [1])))
            await kept.asked.wait()
            asyncio.get_running_loop().call_later(0.05, kept.pace.set)
            await cluster.stop()
            assert [batch.delivery_state for batch in kept.writes[0].batches] == [2]
            await asyncio.wait([acknowledging])
            acknowledging.exception()


async def end(run: ShareRun, producer: int, *, committed: bool) -> None:
    """End a producer's transaction in partition 0."""
    marker = WritableTxnMarker(
        producer_id=producer,
        producer_epoch=0,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=run.topic, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    answer = await run.admin.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0


async def test_what_comes_meanwhile_is_written_together(run: ShareRun, persister: MemoryPersister) -> None:
    """Three members acknowledge while one write is under way: two writes, and each is answered."""
    members = [await run.member(name) for name in "abcd"]
    await run.produce(*(batch(1) for _ in members))
    for member in members:
        await member.fetch("takes", max_records=1)
    persister.pace.clear()
    first, *others = (
        asyncio.create_task(member.acknowledge("its own", (offset, offset, [1])))
        for offset, member in enumerate(members)
    )
    await persister.asked.wait()
    for member in members:
        await member.client.drained()
    await run.produce(batch(1))  # by now the node has read what was sent before
    persister.pace.set()
    await asyncio.gather(first, *others)
    assert [answer[1] for answer in run.log[-4:]] == [("NONE", [(0, "NONE")])] * 4
    (kept,) = persister.kept.values()
    assert kept.start_offset + sum(batch.last_offset - batch.first_offset + 1 for batch in kept.batches) == 4
    assert len(persister.writes) < 4


async def test_a_partition_that_is_acknowledged_twice_in_one_request(run: ShareRun, persister: MemoryPersister) -> None:
    """The last counts, as in Kafka: the acknowledgements of one partition is taken in once for a request."""
    a = await run.member("a")
    await run.produce(batch(4))
    await a.fetch("opens")
    told_twice = [
        AcknowledgePartition(
            partition_index=0,
            acknowledgement_batches=[AcknowledgementBatch(first_offset=at, last_offset=at, acknowledge_types=[1])],
        )
        for at in (0, 1)
    ]
    request = ShareAcknowledgeRequest(
        group_id=run.group_id,
        member_id=a.member_id,
        share_session_epoch=a.epoch,
        is_renew_ack=False,
        topics=[AcknowledgeTopic(topic_id=run.topic_id, partitions=told_twice)],
    )
    answer = await a.client.ask(request, 2)
    assert [partition.error_code for topic in answer.responses for partition in topic.partitions] == [ErrorCode.NONE]
    a.epoch += 1
    await a.acknowledge("the first one was not taken in", (0, 0, [1]))
    assert last_answer(run)[1] == [(0, "NONE")]
