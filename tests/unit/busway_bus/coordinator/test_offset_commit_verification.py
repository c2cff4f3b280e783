"""A partition is asked for, and the transaction may end before the answer comes."""

import asyncio
from collections.abc import Collection, Mapping

import pytest

from busway_bus.coordinator.offset_commit_verification import OffsetCommitVerifications, TransactionalProducer
from busway_bus.kernel.limits import VERIFICATION_ASKS_MAX
from busway_protocol.errors import ErrorCode, KafkaError

PARTITION = ("__consumer_offsets", 3)
PRODUCER = TransactionalProducer(transactional_id="t", producer_id=7, epoch=2)


class Coordinator:
    """Answers on request, with a given answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.answers: list[asyncio.Future[ErrorCode]] = []

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        add: bool,
        host: str,
    ) -> Mapping[tuple[str, int], ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, tuple(partitions), add, host))
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return dict.fromkeys(partitions, await answer)


async def begun(
    verifications: OffsetCommitVerifications, coordinator: Coordinator, *, add: bool = True
) -> "asyncio.Task[None]":
    """A question that was asked and is not answered yet."""
    before = len(coordinator.answers)
    task = asyncio.ensure_future(verifications.verify(coordinator, PRODUCER, PARTITION, add=add, host="h"))
    while len(coordinator.answers) == before:
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("add", [True, False])
async def test_what_belongs_to_the_transaction_may_be_written(add: bool) -> None:
    """Its coordinator is asked for this one partition."""
    coordinator = Coordinator()
    task = await begun(OffsetCommitVerifications(), coordinator, add=add)
    coordinator.answers[0].set_result(ErrorCode.NONE)
    await task
    assert coordinator.asked == [("t", 7, 2, (PARTITION,), add, "h")]


@pytest.mark.parametrize(
    ("code", "refusal_code"),
    [
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
async def test_what_does_not_is_refused(code: ErrorCode, refusal_code: ErrorCode) -> None:
    """In words that producers know."""
    coordinator = Coordinator()
    task = await begun(OffsetCommitVerifications(), coordinator)
    coordinator.answers[0].set_result(code)
    with pytest.raises(KafkaError) as refusal:
        await task
    assert refusal.value.code is refusal_code


async def test_a_transaction_that_ends_meanwhile_is_not_written_to() -> None:
    """Every question of that producer that is open; not those that are asked afterwards, nor those of others."""
    coordinator, verifications = Coordinator(), OffsetCommitVerifications()
    early = [await begun(verifications, coordinator, add=False) for _ in range(2)]
    verifications.ended(8)
    verifications.ended(7)
    late = await begun(verifications, coordinator, add=False)
    verifications.ended(8)
    for answer in coordinator.answers:
        answer.set_result(ErrorCode.NONE)
    for task in early:
        with pytest.raises(KafkaError) as refusal:
            await task
        assert refusal.value.code is ErrorCode.TRANSACTION_ABORTABLE
    await late


async def test_where_the_epoch_tells_transactions_apart_it_is_asked_again() -> None:
    """What ended was the transaction before; the answer that counts is the one in whose time nothing ended."""
    coordinator, verifications = Coordinator(), OffsetCommitVerifications()
    task = await begun(verifications, coordinator)
    for ask in range(3):
        verifications.ended(7)
        coordinator.answers[ask].set_result(ErrorCode.NONE)
        while len(coordinator.answers) == ask + 1:
            await asyncio.sleep(0)
    coordinator.answers[3].set_result(ErrorCode.NONE)
    await task
    assert len(coordinator.asked) == 4
    other = await begun(verifications, coordinator)
    verifications.ended(7)
    coordinator.answers[4].set_result(ErrorCode.NONE)
    while len(coordinator.answers) == 5:
        await asyncio.sleep(0)
    coordinator.answers[5].set_result(ErrorCode.PRODUCER_FENCED)
    with pytest.raises(KafkaError) as refusal:
        await other
    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_it_is_not_asked_for_ever() -> None:
    """Whatever writes markers without end."""
    coordinator, verifications = Coordinator(), OffsetCommitVerifications()
    task = await begun(verifications, coordinator)
    for ask in range(VERIFICATION_ASKS_MAX):
        while len(coordinator.answers) == ask:
            await asyncio.sleep(0)
        verifications.ended(7)
        coordinator.answers[ask].set_result(ErrorCode.NONE)
    with pytest.raises(KafkaError) as refusal:
        await task
    assert refusal.value.code is ErrorCode.TRANSACTION_ABORTABLE
    assert verifications._under_way == {}


async def test_what_is_acted_upon_for_longer_ends_with_the_transaction() -> None:
    """A writer that takes several turns can tell, until they are done, whether it is the same transaction still."""
    verifications = OffsetCommitVerifications()
    with verifications.following(7) as first, verifications.following(7) as second:
        verifications.ended(8)
        assert first()
        assert second()
        verifications.ended(7)
        with verifications.following(7) as third:
            assert not first()
            assert not second()
            assert third()
    assert verifications._under_way == {}


async def test_nothing_is_left_of_a_question() -> None:
    """Whether it was answered, or its client is gone."""
    coordinator, verifications = Coordinator(), OffsetCommitVerifications()
    for end in ("answer", "cancel", "fail"):
        task = await begun(verifications, coordinator)
        if end == "answer":
            coordinator.answers[-1].set_result(ErrorCode.NONE)
        elif end == "cancel":
            task.cancel()
        else:
            coordinator.answers[-1].set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        await asyncio.wait([task])
        assert verifications._under_way == {}
