"""The order of a producer's batches while its coordinator is asked."""

import asyncio

import pytest

from busway_bus.replication.transaction_verification import TransactionVerifications
from busway_protocol.errors import ErrorCode


async def test_what_waits_is_done_in_order_also_behind_what_failed():
    """Another producer does not wait for it."""
    verifications, done, gate = TransactionVerifications(), [], asyncio.Event()

    async def first():
        await gate.wait()
        done.append("first")
        raise ZeroDivisionError

    async def second():
        done.append("second")

    async def other():
        done.append("other")

    failing = verifications.in_turn(7, first)
    behind = verifications.in_turn(7, second)
    assert verifications.waiting(7)
    await verifications.in_turn(8, other)
    assert done == ["other"]
    gate.set()
    await behind
    with pytest.raises(ZeroDivisionError):
        await failing
    assert done == ["other", "first", "second"]
    assert not verifications.waiting(7)


async def test_nothing_is_begun_once_it_is_closed():
    """What waits behind is dropped with what it waits for."""
    verifications, begun = TransactionVerifications(), []

    async def never():
        begun.append("begun")
        await asyncio.get_running_loop().create_future()

    tasks = [verifications.in_turn(7, never) for _ in range(3)]
    await asyncio.sleep(0)
    await verifications.close()
    assert all(task.cancelled() for task in tasks)
    assert begun == ["begun"]
    assert not verifications.waiting(7)


async def test_without_a_coordinator_a_producer_comes_again():
    """A partition that the coordinator says nothing of is likewise no part of a transaction."""

    class Silent:
        async def verify(self, *_, add, host):
            return {("t", 0): ErrorCode.NONE}

    verifications = TransactionVerifications()
    ask = {"add": True, "abortable": True, "host": "h"}
    (refused,) = (await verifications.verify("x", (7, 0), [("t", 0)], **ask)).values()
    assert refused is not None
    assert refused.code is ErrorCode.NOT_ENOUGH_REPLICAS
    verifications.verifier = Silent()
    problems = await verifications.verify("x", (7, 0), [("t", 0), ("t", 1)], **ask)
    assert [problem and problem.code for problem in problems.values()] == [None, ErrorCode.NOT_ENOUGH_REPLICAS]
