"""What members of share groups ask, for one broker after the other.

Here: sequences of calls whose answers do not depend on chance.
Not here: what ought to be answered: each broker says.
"""

from collections.abc import Awaitable, Callable

from tests.integration.broker.share_probe import ShareRun, batch

Scenario = Callable[[ShareRun], Awaitable[None]]


async def acknowledging(run: ShareRun) -> None:
    """Accept, release, reject, gaps, one by one and together; too early, too late, twice, and another's."""
    a, b = await run.member("a"), await run.member("b")
    await a.fetch("opens")
    await run.produce(batch(5), batch(5), batch(5))
    await a.fetch("takes some", max_records=6)
    await b.fetch("opens")
    await a.acknowledge("one by one", (0, 4, [1, 2, 3, 0, 1]))
    await a.acknowledge("again", (0, 0, [1]))
    await b.acknowledge("another's", (5, 9, [1]))
    await b.acknowledge("its own", (10, 14, [1]))
    await a.acknowledge("behind", (13, 20, [1]))
    await a.acknowledge("far behind", (30, 30, [1]))
    await a.fetch("what it released")
    await a.acknowledge("half of a batch", (5, 6, [2]), (7, 9, [1]))
    await a.fetch("with acknowledgements", (1, 1, [1]))
    await b.fetch("nothing", wait_ms=50)
    await a.acknowledge("the rest", (5, 6, [1]))
    await run.produce(batch(2))
    await b.fetch("what is new")
    await b.fetch("rejects and ends", (15, 16, [3]), epoch=-1)
    await b.fetch("after its end", epoch=1)
    await a.fetch("nothing is left", wait_ms=50)


async def sessions(run: ShareRun) -> None:
    """Epochs, partitions that come and go, and everything that is wrong with a request."""
    a = await run.member("a")
    await a.acknowledge("before a session", epoch=1)
    await a.acknowledge("a session does not begin so", epoch=0)
    await a.fetch("no such session", epoch=3)
    await a.fetch("nothing to end", epoch=-1)
    await a.fetch("acknowledges too early", (0, 0, [1]), epoch=0)
    await a.fetch("no member", epoch=0, member_id="")
    await a.fetch("a long member", epoch=0, member_id="m" * 37)
    await a.fetch("opens", wait_ms=0)
    await a.fetch("a wrong epoch", epoch=7)
    await run.produce(batch(3))
    await run.produce(batch(2), partition=1)
    await a.fetch("one partition")
    await a.fetch("both", (0, 2, [1]), partitions=(0, 1))
    await a.fetch("no such partition", partitions=(5,), wait_ms=50)
    await a.fetch("forgets", partitions=(), forget=(0, 5), wait_ms=50)
    await a.acknowledge("of the other", (0, 1, [1]), partition=1)
    await a.acknowledge("not acquired", (0, 1, [1]), partition=1)
    for label, acknowledged in [
        ("backwards", [(3, 2, [1])]),
        ("overlapping", [(5, 9, [1]), (6, 7, [1])]),
        ("no type", [(3, 3, [])]),
        ("too many types", [(3, 3, [1, 1])]),
        ("an unknown type", [(3, 3, [5])]),
        ("renewing, unsaid", [(3, 3, [4])]),
    ]:
        await a.acknowledge(label, *acknowledged)
        await a.fetch(f"{label}, with a fetch", *acknowledged, wait_ms=50)
    await a.acknowledge("an old version renews", (3, 3, [4]), version=1)
    await a.fetch("renewing with a fetch", is_renew_ack=True, epoch=a.epoch)
    await a.acknowledge("ends", epoch=-1)
    await a.acknowledge("after the end", epoch=-1)
    a.epoch = 0
    await a.fetch("opens again", wait_ms=50)
    await a.fetch("opens over it", epoch=0, wait_ms=50)
    await a.fetch("goes on with that", wait_ms=50)


async def acquiring(run: ShareRun) -> None:
    """Whole batches, parts of them, the batch size, one member after the other, and what comes back."""
    a, b = await run.member("a"), await run.member("b")
    await a.fetch("opens", wait_ms=0)
    await b.fetch("opens", wait_ms=0)
    await run.produce(*(batch(10) for _ in range(6)))
    await a.fetch("to the end of a batch", max_records=15, batch_size=10)
    await b.fetch("no more than that", max_records=5, share_acquire_mode=1)
    await b.fetch("and the next", max_records=7, share_acquire_mode=1)
    await a.fetch("and whole ones again", max_records=1)
    await a.acknowledge("gives back", (0, 9, [2]), (15, 19, [2]))
    await b.acknowledge("gives back", (22, 23, [2]), (25, 31, [1]))
    await b.fetch("takes what is free", max_records=3)
    await b.fetch("and more", max_records=2, share_acquire_mode=1)
    await a.fetch("and the rest")
    await a.fetch("ends", epoch=-1)
    await b.fetch("what the other had", max_records=500)
    await b.fetch("old version", version=1, wait_ms=50)
    await b.fetch("bytes", max_bytes=0)


async def deliveries(run: ShareRun) -> None:
    """A record that is released again and again comes in smaller parts, alone, and then no more."""
    a = await run.member("a")
    await a.fetch("opens", wait_ms=0)
    await run.produce(batch(8))
    for round_ in range(12):
        answer = await a.fetch(f"round {round_}", wait_ms=100)
        released = [
            (part.first_offset, part.last_offset, [2])
            for topic in answer.responses
            for partition in topic.partitions
            for part in partition.acquired_records
        ]
        if released:
            await a.acknowledge(f"releases in {round_}", *released)


SCENARIOS: tuple[Scenario, ...] = (acknowledging, sessions, acquiring, deliveries)
