"""The loop of a fetcher: a fetch that is abandoned for a moved partition, and its end."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from busway_bus.replication.fetcher import Fetcher, FetcherSettings
from busway_bus.replication.partition_state import Role
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.fetch import FetchResponse


class Leader:
    """Answers no fetch by itself.

    Attributes:
        sent: the purpose of each fetch, and the future of its response.
        hides: whether a cancelled fetch fails as if its connection had ended.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[str, asyncio.Future[FetchResponse]]] = []
        self.came = asyncio.Event()
        self.hides = False

    async def send(self, node_id: int, request: Any, *, purpose: str, timeout_ms: int) -> FetchResponse:
        """Wait for a response, as a connection does."""
        response: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        self.sent.append((purpose[-1], response))
        self.came.set()
        try:
            return await response
        except asyncio.CancelledError:
            if self.hides:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "closed") from None
            raise

    async def fetched(self, count: int) -> None:
        """Wait until so many fetches have come."""
        while len(self.sent) < count:
            self.came.clear()
            await self.came.wait()


async def synced(_: Any) -> None:
    """All is on disk."""


def followed(index: int) -> Any:
    log = SimpleNamespace(end_offset=0, start_offset=0, epochs=SimpleNamespace(latest=-1))
    state = SimpleNamespace(leader_epoch=1, role=Role.FOLLOWER)
    return SimpleNamespace(topic="t", index=index, topic_id=UUID(int=1), log=log, state=state, unfinished=None)


def fetcher(leader: Leader) -> Fetcher:
    return Fetcher(
        1,
        node_id=2,
        broker_epoch=lambda: 1,
        channels=cast("Any", leader),
        logs=cast("Any", SimpleNamespace(synced=synced)),
        settings=FetcherSettings(),
    )


async def test_a_partition_that_moves_here_is_fetched_at_once_on_the_other_connection() -> None:
    """Also a second one, though that waits for the end of a poll: no connection is without an answer for long."""
    leader = Leader()
    made = fetcher(leader)
    made.put(followed(0))
    await leader.fetched(1)
    made.put(followed(1))
    await leader.fetched(2)
    assert [purpose for purpose, _ in leader.sent] == ["0", "1"]
    assert leader.sent[0][1].cancelled()
    made.put(followed(2))
    leader.sent[1][1].set_result(FetchResponse(responses=[], session_id=7))
    await leader.fetched(3)
    assert leader.sent[2][0] == "1"
    await made.close()


async def test_a_fetch_whose_response_is_there_when_a_partition_moves_may_be_lost() -> None:
    """The next one begins a new session, and goes on from the logs' ends."""
    leader = Leader()
    made = fetcher(leader)
    made.put(followed(0))
    await leader.fetched(1)
    leader.sent[0][1].set_result(FetchResponse(responses=[], session_id=7))
    made.put(followed(1))
    await leader.fetched(2)
    await made.close()


@pytest.mark.parametrize("moved", [False, True])
async def test_it_ends_although_a_fetch_fails_as_it_is_cancelled(*, moved: bool) -> None:
    leader = Leader()
    leader.hides = True
    made = fetcher(leader)
    made.put(followed(0))
    await leader.fetched(1)
    if moved:
        made.put(followed(1))
        await asyncio.sleep(0)
    await made.close()
