"""Items to another broker: together where they wait, apart where they must, and none is forgotten."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from busway_bus.coordinator.broker_queues import BrokerQueues, Destination
from busway_bus.kernel.limits import QUEUED_FOR_BROKER_MAX
from busway_bus.metadata.image import BrokerImage, ClusterImage
from busway_bus.metadata.sorted_map import SortedMap
from busway_protocol.errors import ErrorCode, KafkaError

TWO = Destination(2)


class Wire:
    """Requests that are answered when the test says so."""

    def __init__(self) -> None:
        self.requests: list[tuple[list[str], asyncio.Future[Sequence[int]]]] = []
        self.queues: BrokerQueues[str, int] = BrokerQueues(self.send, key=lambda item: item[0], at_once=3)

    async def send(self, destination: Destination, items: Sequence[str]) -> Sequence[int]:
        answered = asyncio.get_running_loop().create_future()
        self.requests.append((list(items), answered))
        return await answered

    async def ask(self, *items: str) -> "list[asyncio.Task[int]]":
        asked = [asyncio.ensure_future(self.queues.ask(TWO, item)) for item in items]
        await turn()
        return asked


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_items_that_wait_go_together() -> None:
    """At most `at_once` of them, one of a key, in order; the next request goes when the last is answered."""
    wire = Wire()
    asked = await wire.ask("a1", "b1", "c1", "d1", "e1", "e2")
    assert [items for items, _ in wire.requests] == [["a1", "b1", "c1"]]
    wire.requests[0][1].set_result([1, 2, 3])
    await turn()
    assert [items for items, _ in wire.requests[1:]] == [["d1", "e1"]]
    wire.requests[1][1].set_result([4, 5])
    await turn()
    wire.requests[2][1].set_result([6])
    assert await asyncio.gather(*asked) == [1, 2, 3, 4, 5, 6]


async def test_a_failed_request_fails_its_items_only() -> None:
    """Those that wait are sent; a response of the wrong length fails its items too."""
    wire = Wire()
    first = await wire.ask("a1")
    later = await wire.ask("b1")
    wire.requests[0][1].set_exception(KafkaError(ErrorCode.NETWORK_EXCEPTION))
    await turn()
    wire.requests[1][1].set_result([])
    await turn()
    assert [_code(task) for task in (*first, *later)] == [ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNKNOWN_SERVER_ERROR]


async def test_a_caller_that_is_gone_is_left_out() -> None:
    wire = Wire()
    await wire.ask("a1")
    gone, stays = await wire.ask("b1", "c1")
    gone.cancel()
    await turn()
    wire.requests[0][1].set_result([1])
    await turn()
    assert wire.requests[1][0] == ["c1"]
    wire.requests[1][1].set_result([3])
    assert await stays == 3


async def test_what_waits_for_a_fenced_broker_fails() -> None:
    """At once: its partitions have other leaders. A later item begins a new queue."""
    wire = Wire()
    sent, *waiting = [*await wire.ask("a1"), *await wire.ask("b1")]
    wire.queues.follow(_image(fenced=False))
    await turn()
    assert not sent.done()
    wire.queues.follow(_image(fenced=True))
    await turn()
    assert [_code(sent), _code(waiting[0])] == [ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE]
    (again,) = await wire.ask("c1")
    wire.requests[-1][1].set_result([7])
    assert await again == 7


async def test_a_queue_is_bounded() -> None:
    wire = Wire()
    await wire.ask("a")
    asked = await wire.ask(*(chr(number + 40) for number in range(QUEUED_FOR_BROKER_MAX + 1)))
    assert _code(asked[-1]) is ErrorCode.BROKER_NOT_AVAILABLE
    assert not asked[-2].done()
    wire.queues.close()
    await turn()
    assert all(task.done() for task in asked)


def _code(task: "asyncio.Task[int]") -> ErrorCode:
    problem = task.exception()
    assert isinstance(problem, KafkaError)
    return problem.code


def _image(*, fenced: bool) -> ClusterImage:
    broker = BrokerImage(
        node_id=2, epoch=1, incarnation=UUID(int=1), addresses={}, rack=None, fenced=fenced, directories=(), features={}
    )
    return replace(ClusterImage(), brokers=SortedMap({2: broker}))
