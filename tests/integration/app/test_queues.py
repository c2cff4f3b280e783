"""`@app.queue` on the cluster in memory that `app.test()` starts."""

from dataclasses import dataclass

import pytest

from busway import App, Context, Exponential, Reject, Retry

pytestmark = pytest.mark.slow


@dataclass
class Job:
    """Something to do."""

    number: int


async def test_a_queue_settles_with_all_done_or_put_aside() -> None:
    """`settle` waits for the queue too: what fails comes again, and what no handler can do is among its dead letters."""
    app = App("svc")
    jobs = app.topic("jobs", value=Job, format="json", partitions=2)
    done: list[tuple[int, int]] = []

    @app.queue(
        jobs, group="workers", concurrency=3, retry=Retry(attempts=3, backoff=Exponential(initial=0.01, max=0.02))
    )
    async def handle(job: Job, context: Context[None]) -> None:
        if job.number == 2 and context.attempt == 1:
            raise TimeoutError
        if job.number == 5:
            raise Reject("nobody can")
        done.append((job.number, context.attempt))

    async with app.test() as bus:
        for number in range(8):
            await bus.send(jobs, Job(number))
        await bus.settle()
        assert sorted(done) == [(0, 1), (1, 1), (2, 2), (3, 1), (4, 1), (6, 1), (7, 1)]
        letters = await bus.dead_letters(jobs, group="workers")
        assert len(letters) == 1
        for number in range(8, 11):
            await bus.send(jobs, Job(number))
        await bus.settle()
        assert sorted(number for number, _ in done)[-3:] == [8, 9, 10]
