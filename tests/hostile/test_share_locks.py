"""Very many records of share groups, each with a lock and an answer of its own: no other client notices."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.broker.share_probe import Member, ShareRun, batch
from tests.integration.broker.test_share_fetch_beside_kafka import SETTINGS, join
from tests.support.busway_process import BuswayProcess
from tests.support.canary import Canary, KafkaQuestion
from tests.support.patience import patient

RECORDS, PARTITIONS = 10_000, 8
LOCK_S = 15
LARGE = {"max_records": RECORDS, "max_bytes": 10 << 20, "wait_ms": 5_000}


@pytest.fixture
def broker() -> Iterator[BuswayProcess]:
    """One whose groups may have as many records under way as Kafka lets them have, for as short a time."""
    locks = {
        "group.share.max.partition.max.record.locks": str(RECORDS),
        "group.share.partition.max.record.locks": str(RECORDS),
        "group.share.record.lock.duration.ms": str(LOCK_S * 1000),
    }
    running = BuswayProcess({**SETTINGS, **locks, "log.cleaner.enable": "false"})
    running.start()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def canary(broker: BuswayProcess) -> Iterator[Canary]:
    """Asks it all the time."""
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
    ask = KafkaQuestion(broker.bootstrap_servers)
    with Canary(broker.pid, ask) as singing:
        yield singing
    singing.check()


async def taken(member: Member) -> None:
    """The member has all records, and answers for every second one by itself, as many as there are in one request."""
    for number in range(PARTITIONS):
        await member.fetch("takes", partitions=(number,), forget=(number - 1,) if number else (), **LARGE)
        assert member.run.log[-1][1][2][0][3][0][:2] == (0, RECORDS - 1)
        acknowledged = [(offset, offset, [1]) for offset in range(1, RECORDS, 2)]
        await member.acknowledge("answers", *acknowledged, partition=number)
        assert member.run.log[-1][1] == ("NONE", [(number, "NONE")])


async def given_again(member: Member) -> None:
    """Another member gets what the first one has left, from every partition."""
    for number in range(PARTITIONS):
        await member.fetch("takes", partitions=(number,), forget=(number - 1,) if number else (), **LARGE)
        acquired = member.run.log[-1][1][2][0][3]
        assert {part[2] for part in acquired} == {2}
        assert len(acquired) == RECORDS // 2


@pytest.mark.slow
async def test_locks_of_tens_of_thousands_of_records(broker: BuswayProcess, canary: Canary) -> None:
    """They are answered for one by one, end together, and are given up together with a connection."""
    run = ShareRun(broker.bootstrap_servers, "g", "t", join)
    try:
        await run.prepare(PARTITIONS)
        first = await run.member("a")
        second, third = [Member(run, name, await run.connect()) for name in ("b", "c")]
        for number in range(PARTITIONS):
            await run.produce(batch(RECORDS), partition=number)
        await taken(first)
        await first.client.__aexit__(None, None, None)
        await given_again(second)
        async with asyncio.timeout(patient(4 * LOCK_S)):
            while not run.log[-1][1][2] or {part[2] for part in run.log[-1][1][2][0][3]} != {3}:
                await third.fetch("waits for the locks to end", **LARGE)
    finally:
        await run.close()
