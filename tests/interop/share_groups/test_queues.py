"""`@app.queue` on brokers that serve share groups: attempts, dead letters, long handlers, several processes, stopping."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from busway import (
    Admin,
    App,
    ConsumerRecord,
    Context,
    Depends,
    Exponential,
    HandlerFailed,
    Reject,
    Retry,
    read_to_end,
)
from busway.app.monitoring.health import Health
from tests.interop.share_groups.conftest import LOCK_MS, Work
from tests.support.patience import patient

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow]
PATIENCE_S = patient(40.0)
QUICK = Exponential(initial=0.05, max=0.1)


@dataclass
class Job:
    """Something to do."""

    number: int


def service(work: Work, name: str = "svc") -> tuple[App, Any]:
    """An app and the topic of its jobs."""
    app = App(f"{name}-{work.topic}", work.bootstrap_servers, drain_timeout_s=patient(5))
    return app, app.topic(work.topic, value=Job, format="json")


async def until(app: App, count: int) -> None:
    """Returns when so many records were handled or dead-lettered."""
    (worker,) = app.queue_workers
    async with asyncio.timeout(PATIENCE_S):
        while worker.counts.handled + worker.counts.dead_lettered < count:
            worker.progress.clear()
            await worker.progress.wait()


async def until_nothing_is_left(work: Work, group: str) -> None:
    """Returns when the group is done with all records."""
    async with Admin(work.bootstrap_servers) as admin, asyncio.timeout(PATIENCE_S):
        while True:
            offsets = await admin.list_share_group_offsets(group)
            if offsets and all(at.lag == 0 for at in offsets.values()):
                return


async def test_attempts_are_deliveries_and_end_among_the_dead_letters(work: Work) -> None:
    """One record fails once, one always, one is rejected, one is not wanted; results are published, parameters filled as in subscribe."""
    app, jobs = service(work)
    results = app.topic(f"{work.topic}.results", value=Job, format="json", partitions=1)
    calls: list[tuple[int, int]] = []

    def factor() -> int:
        return 10

    @app.publish(results)
    @app.queue(
        work.topic,
        group=work.group,
        concurrency=4,
        retry=Retry(attempts=3, backoff=QUICK),
        where=lambda record: record.value.number != 7,
    )
    async def handle(
        job: Job, record: ConsumerRecord[str, Job], context: Context[None], by: int = Depends(factor)
    ) -> Job:
        assert context.group == work.group
        assert record.value == job
        calls.append((job.number, context.attempt))
        if job.number == 3 or (job.number == 4 and context.attempt == 1):
            raise ValueError(job.number)
        if job.number == 5:
            raise Reject("nobody can")
        return Job(job.number * by)

    async with app:
        for number in range(8):
            await jobs.send(Job(number))
        await until(app, 8)
        await until_nothing_is_left(work, work.group)
        assert sorted(calls) == [(0, 1), (1, 1), (2, 1), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (5, 1), (6, 1)]
        published = [record.value.number async for record in app.read(results)]
        assert sorted(published) == [0, 10, 20, 40, 60]
    letters = [
        dict(record.headers) async for record in read_to_end(work.bootstrap_servers, f"{work.topic}.{work.group}.dlt")
    ]
    assert {letter["busway_dlt-attempts"] for letter in letters} == {b"3", b"1"}
    assert {letter["kafka_dlt-original-consumer-group"] for letter in letters} == {work.group.encode()}


async def test_a_handler_may_take_longer_than_the_lock(narrow_work: Work) -> None:
    """Two instances: while one works on the record for several locks, the other does not get it."""
    work = narrow_work
    calls: Counter[int] = Counter()
    first, jobs = service(work)
    second, _ = service(work)

    async def handle(job: Job) -> None:
        calls[job.number] += 1
        await asyncio.sleep(LOCK_MS / 1000 * 2.5)

    for app in (first, second):
        app.queue(work.topic, group=work.group)(handle)
    async with first, second:
        await jobs.send(Job(1))
        await until_nothing_is_left(work, work.group)
    assert calls == {1: 1}


async def test_instances_share_a_partition_and_each_job_is_done_once(narrow_work: Work) -> None:
    """More instances than partitions, all of them at work."""
    work = narrow_work
    apps: list[App] = []
    done: list[tuple[int, int]] = []
    together = asyncio.Barrier(3)
    topics = []
    for number in range(3):
        app, jobs = service(work)
        topics.append(jobs)

        async def handle(job: Job, at: int = number) -> None:
            if job.number < 3:
                await together.wait()
            done.append((job.number, at))

        app.queue(work.topic, group=work.group)(handle)
        apps.append(app)
    async with apps[0], apps[1], apps[2], asyncio.timeout(PATIENCE_S):
        for number in range(60):
            await topics[0].send(Job(number))
        await until_nothing_is_left(work, work.group)
    assert sorted(number for number, _ in done) == list(range(60))
    assert {at for _, at in done} == {0, 1, 2}


async def test_stopping_releases_what_waits_for_its_next_attempt(work: Work) -> None:
    """A failed record whose wait is long does not keep the app; the next instance has it at once. Health says when the group has it."""
    app, jobs = service(work)
    health = app.extend(Health())
    failed = asyncio.Event()

    @app.queue(work.topic, group=work.group, retry=Retry(backoff=Exponential(initial=60, max=60)))
    async def fails(job: Job) -> None:
        failed.set()
        raise ValueError

    async with app:
        await jobs.send(Job(1))
        async with asyncio.timeout(PATIENCE_S):
            await failed.wait()
        assert (await health.ready()).ready
    again, _ = service(work)
    attempts = []

    @again.queue(work.topic, group=work.group)
    async def works(job: Job, context: Context[None]) -> None:
        attempts.append(context.attempt)

    async with again:
        await until(again, 1)
    assert attempts == [2]


async def test_without_dead_letters_the_app_stops_and_the_record_stays(work: Work) -> None:
    """It is released, not lost."""
    app, jobs = service(work)

    @app.queue(work.topic, group=work.group, retry=Retry(attempts=1), dead_letter=False)
    async def fails(job: Job) -> None:
        raise ValueError(job.number)

    async with app:
        await jobs.send(Job(1))
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(HandlerFailed, match="after 1 attempts"):
                await app.wait()
    async with Admin(work.bootstrap_servers) as admin:
        offsets = await admin.list_share_group_offsets(work.group)
        assert sum(at.lag or 0 for at in offsets.values()) == 1
