"""`ShareConsumer` on brokers that serve share groups: what becomes of records, members that die, sessions that end."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busway import AcknowledgementFailed, Admin, BrokerError, Producer, Record, ShareConsumer, TopicPartition
from tests.interop.share_groups.conftest import LOCK_MS, Work
from tests.support.apache_kafka import java_command
from tests.support.patience import patient
from tests.support.programs import spawn, spawn_async

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow]
PROGRAM = Path(__file__).parent.parent / "programs" / "share_member.py"
PATIENCE_S = patient(40.0)


def consumer_of(work: Work, **options: Any) -> ShareConsumer:
    """A member of the group."""
    return ShareConsumer(work.topic, bootstrap_servers=work.bootstrap_servers, group_id=work.group, **options)


async def take(
    consumer: ShareConsumer, count: int, also: Callable[[Record], Any] = lambda record: None
) -> list[Record]:
    """So many records, each given to `also` as it comes."""
    records_taken: list[Record] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(records_taken) < count:
            for records in (await consumer.getmany(timeout_ms=1000, max_records=count - len(records_taken))).values():
                for record in records:
                    records_taken.append(record)
                    also(record)
    return records_taken


async def until_nothing_is_left(work: Work) -> None:
    """Returns when the group is done with all records."""
    async with Admin(work.bootstrap_servers) as admin, asyncio.timeout(PATIENCE_S):
        while True:
            offsets = await admin.list_share_group_offsets(work.group)
            if len(offsets) == work.partitions and all(at.lag == 0 for at in offsets.values()):
                return


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
async def test_each_record_is_handed_out_until_something_final_became_of_it(work: Work, mode: Any) -> None:
    """Accepted and rejected ones never come again, released ones at once and counted."""
    await work.send(*(b"%d" % number for number in range(10)))
    async with consumer_of(work, acquire_mode=mode, fetch_max_wait_ms=100) as consumer:
        kinds: dict[bytes, Any] = {b"3": "release", b"4": "reject", b"5": "release"}
        first = await take(
            consumer, 10, lambda record: consumer.acknowledge(record, kinds.get(record.value or b"", "accept"))
        )
        assert sorted(record.value or b"" for record in first) == [b"%d" % number for number in range(10)]
        assert {record.delivery_count for record in first} == {1}
        await consumer.commit()
        again = await take(consumer, 2, consumer.acknowledge)
        assert {(record.value, record.delivery_count) for record in again} == {(b"3", 2), (b"5", 2)}
        await consumer.commit()
        assert consumer.acquisition_lock_timeout_ms == LOCK_MS
        await until_nothing_is_left(work)
        assert await consumer.getmany(timeout_ms=500) == {}


async def test_implicitly_the_next_call_accepts_what_the_last_one_handed_out(work: Work) -> None:
    """And `commit` does, but closing does not: those come again."""
    await work.send(b"a", b"b", b"c", b"d")
    async with consumer_of(work, acknowledgement_mode="implicit") as consumer:
        done = await take(consumer, 3)
        await consumer.commit()
        (left,) = await take(consumer, 1)
        with pytest.raises(ValueError, match="implicit"):
            consumer.acknowledge(left)
    async with consumer_of(work, acknowledgement_mode="implicit") as consumer:
        (again,) = await take(consumer, 1)
        assert again.value == left.value
        assert again.value not in {record.value for record in done}
        await consumer.commit()
    await until_nothing_is_left(work)


async def test_what_is_held_longer_than_its_lock_goes_to_others_unless_it_is_renewed(narrow_work: Work) -> None:
    """Two members: the first renews one record, and loses the other; what it says of that is refused."""
    work = narrow_work
    await work.send(b"renewed", b"lost")
    async with consumer_of(work) as slow, consumer_of(work) as quick:
        held = {record.value: record for record in await take(slow, 2)}

        async def renew() -> None:
            while True:
                await slow.acknowledge(held[b"renewed"], "renew")
                await asyncio.sleep(LOCK_MS / 1000 / 4)

        renewing = asyncio.ensure_future(renew())
        try:
            (lost,) = await take(quick, 1)
            assert (lost.value, lost.delivery_count) == (b"lost", 2)
            await quick.acknowledge(lost)
            assert await quick.getmany(timeout_ms=LOCK_MS) == {}
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
        with pytest.raises(AcknowledgementFailed):
            await slow.acknowledge(held[b"lost"])
        with pytest.raises(AcknowledgementFailed):
            await slow.commit()
        await slow.acknowledge(held[b"renewed"])
        await slow.commit()
    await until_nothing_is_left(work)


async def test_closing_releases_what_is_held(work: Work) -> None:
    """The next member has it at once, long before the lock would have ended."""
    await work.send(b"a", b"b")
    async with consumer_of(work) as consumer:
        await take(consumer, 2)
    async with consumer_of(work) as consumer:
        async with asyncio.timeout(LOCK_MS / 1000):
            again = await take(consumer, 2, consumer.acknowledge)
        assert {record.value for record in again} == {b"a", b"b"}
        await consumer.commit()
    await until_nothing_is_left(work)


async def test_records_of_a_member_that_is_killed_come_again(work: Work) -> None:
    """A process takes all and gets SIGKILL: another member has its records, delivered for the second time."""
    await work.send(*(b"%d" % number for number in range(6)))
    command = [sys.executable, str(PROGRAM), work.bootstrap_servers, work.topic, work.group]
    victim = spawn(command, stdout=subprocess.PIPE, text=True)
    try:
        assert victim.stdout is not None
        output = victim.stdout
        lines = await asyncio.to_thread(lambda: [output.readline() for _ in range(6)])
        victim.kill()
        taken = {tuple(int(word) for word in line.split()) for line in lines}
        async with consumer_of(work) as consumer:
            again = await take(consumer, 6, consumer.acknowledge)
            await consumer.commit()
        assert {(record.partition, record.offset, record.delivery_count) for record in again} == {
            (partition, offset, count + 1) for partition, offset, count in taken
        }
    finally:
        victim.kill()
        victim.wait()
        assert victim.stdout is not None
        victim.stdout.close()
    await until_nothing_is_left(work)


async def test_a_session_that_has_ended_is_opened_anew(work: Work) -> None:
    """The connection goes: what is said of its records is refused, they come again, and later ones flow."""
    await work.send(b"a")
    async with consumer_of(work) as consumer:
        (before,) = await take(consumer, 1)
        for connection in list(consumer._cluster._connections.values()):
            connection.close()
        with pytest.raises(AcknowledgementFailed):
            await consumer.acknowledge(before)
        with pytest.raises(AcknowledgementFailed):
            await consumer.commit()
        (again,) = await take(consumer, 1, consumer.acknowledge)
        assert again.value == b"a"
        await work.send(b"b")
        (later,) = await take(consumer, 1, consumer.acknowledge)
        assert later.value == b"b"
        await consumer.commit()


async def test_transactions_that_were_aborted_are_not_seen(work: Work) -> None:
    """With share.isolation.level=read_committed; markers hold nothing up."""
    async with Admin(work.bootstrap_servers) as admin:
        await admin.alter_group_configs(work.group, {"share.isolation.level": "read_committed"})
    async with Producer(work.bootstrap_servers, transactional_id=work.topic) as producer:
        for value, commits in ((b"no", False), (b"yes", True), (b"never", False)):
            await producer.begin_transaction()
            for partition in range(2):
                await producer.send(work.topic, value, partition=partition)
            await (producer.commit_transaction() if commits else producer.abort_transaction())
    async with consumer_of(work) as consumer:
        records = await take(consumer, 2, consumer.acknowledge)
        await consumer.commit()
        assert [record.value for record in records] == [b"yes", b"yes"]
        assert await consumer.getmany(timeout_ms=500) == {}
    await until_nothing_is_left(work)


async def test_members_of_java_and_ours_share_the_records(work: Work) -> None:
    """Kafka's VerifiableShareConsumer and two of ours in one group: each record is accepted once and all take part."""
    total = 3000
    tool = await spawn_async(
        *java_command(
            "org.apache.kafka.tools.VerifiableShareConsumer",
            *("--bootstrap-server", work.bootstrap_servers, "--topic", work.topic, "--group-id", work.group),
            *("--acknowledgement-mode", "sync"),
        ),
        stdout=subprocess.PIPE,
    )
    accepted: list[tuple[int, int]] = []
    theirs = 0
    done = asyncio.Event()

    async def listen() -> None:
        nonlocal theirs
        assert tool.stdout is not None
        async for line in tool.stdout:
            event = json.loads(line)
            if event["name"] == "offsets_acknowledged" and event.get("success", True):
                for part in event["partitions"]:
                    accepted.extend((part["partition"], offset) for offset in part["offsets"])
                    theirs += len(part["offsets"])
                done.set()

    async def ours(consumer: ShareConsumer) -> int:
        count = 0
        while True:
            for records in (await consumer.getmany(timeout_ms=500, max_records=20)).values():
                for record in records:
                    try:
                        await consumer.acknowledge(record)
                    except AcknowledgementFailed:
                        continue  # on a machine that is busy a lock may end: another member has the record then
                    accepted.append((record.partition, record.offset))
                    count += 1
                    counts[consumer] = count
                done.set()

    counts: dict[ShareConsumer, int] = {}
    listening = asyncio.ensure_future(listen())
    working: list[asyncio.Future[Any]] = []
    try:
        async with (
            consumer_of(work, fetch_max_wait_ms=100) as first,
            consumer_of(work, fetch_max_wait_ms=100) as second,
        ):
            async with (
                Producer(work.bootstrap_servers, linger_ms=0, batch_size=256) as producer,
                asyncio.timeout(PATIENCE_S),
            ):
                working = [asyncio.ensure_future(ours(first)), asyncio.ensure_future(ours(second))]
                sent = 0
                while sent < total or len(accepted) < sent or not theirs or len(counts) < 2:
                    assert not any(task.done() for task in working)
                    if (sent < total or not theirs) and sent - len(accepted) < 500:
                        for _ in range(50):
                            await producer.send(work.topic, b"%d" % sent, partition=sent % 2)
                            sent += 1
                        await producer.flush()
                    else:
                        done.clear()
                        await done.wait()
            for task in working:
                task.cancel()
            await asyncio.wait(working)
        assert len(accepted) == len(set(accepted)) == sent
        assert theirs
        assert all(counts.values())
    finally:
        for task in working:
            task.cancel()
        tool.terminate()
        await tool.wait()
        await listening


async def test_a_group_of_another_kind_is_refused_by_name(work: Work) -> None:
    """The error of the coordinator reaches the reader."""
    from busway import Consumer

    async with Consumer(work.topic, bootstrap_servers=work.bootstrap_servers, group_id=work.group) as other:
        async with asyncio.timeout(PATIENCE_S):
            while not other.assignment():
                await other.getmany(timeout_ms=200)
        async with consumer_of(work) as consumer:
            with pytest.raises(BrokerError, match=work.group):
                await take(consumer, 1)


async def test_the_admin_sees_and_moves_a_share_group(work: Work) -> None:
    """Members while they are there; offsets that are set and forgotten when they have gone."""
    await work.send(b"a", b"b", b"c", b"d")
    partitions = {TopicPartition(work.topic, number) for number in range(2)}
    async with Admin(work.bootstrap_servers) as admin:
        async with consumer_of(work) as consumer:
            await take(consumer, 4, consumer.acknowledge)
            await consumer.commit()
            described = await admin.describe_share_group(work.group)
            assert described.state == "Stable"
            assert [member.member_id for member in described.members] == [consumer.member_id()]
            assert set(described.members[0].partitions) == partitions
            listed = {group.group_id: group.kind for group in await admin.list_groups()}
            assert listed[work.group] == "share"
        await until_nothing_is_left(work)
        await admin.alter_share_group_offsets(work.group, dict.fromkeys(partitions, 1))
        assert {at.start_offset for at in (await admin.list_share_group_offsets(work.group)).values()} == {1}
        async with consumer_of(work) as consumer:
            again = await take(consumer, 2, consumer.acknowledge)
            assert {record.value for record in again} == {b"c", b"d"}
            await consumer.commit()
        await admin.delete_share_group_offsets(work.group, [work.topic])
        assert await admin.list_share_group_offsets(work.group) == {}
