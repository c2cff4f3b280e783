"""The choice of a broker for a request that any of them serves."""

from dataclasses import dataclass
from typing import Any

import pytest

from busway.cluster.client import ClusterClient
from busway.errors import ConnectionFailed, RequestTimedOut

SILENT, RESPONSIVE, UNTRIED = ("silent", 9092), ("responsive", 9092), ("untried", 9092)


@dataclass(eq=False)
class Connection:
    """A connection with so many pending requests, or one that ended."""

    name: str = ""
    waiting: int = 0
    problem: Exception | None = None

    @property
    def open(self) -> bool:
        return self.problem is None


class Cluster(ClusterClient):
    """Three known brokers; notes connections that are opened."""

    def __init__(self, *failing: tuple[str, int]) -> None:
        super().__init__("bootstrap:9092", client_id="test")
        self.metadata.brokers = dict(enumerate((SILENT, RESPONSIVE, UNTRIED)))
        self.failing = failing
        self.opened: list[tuple[str, int]] = []

    def add(self, address: tuple[str, int], purpose: str, connection: Connection) -> Connection:
        self._connections[address, purpose] = connection  # type: ignore[assignment]
        return connection

    async def _open(self, key: Any, host: str, port: int, *, advertised: bool = False) -> Any:
        self.opened.append((host, port))
        if (host, port) in self.failing:
            raise ConnectionFailed("refused")
        return self._connections.get(key) or Connection(host)


TIMED_OUT = Connection(problem=RequestTimedOut("no response"))


async def test_a_broker_that_did_not_respond_is_asked_last() -> None:
    """Its idle connection too is left alone: the next request would wait for its time-out again."""
    for _ in range(20):  # known brokers are tried in random order
        cluster = Cluster()
        cluster.add(SILENT, "fetch", TIMED_OUT)
        cluster.add(SILENT, "", Connection("idle"))
        assert (await cluster.any_connection()).name in {RESPONSIVE[0], UNTRIED[0]}
        assert len(cluster.opened) == 1


async def test_an_idle_connection_to_another_is_used() -> None:
    cluster = Cluster()
    cluster.add(SILENT, "fetch", TIMED_OUT)
    cluster.add(SILENT, "", Connection("idle"))
    busy = cluster.add(RESPONSIVE, "", Connection("busy", waiting=3))
    assert await cluster.any_connection() is busy
    assert cluster.opened == []


async def test_a_broker_that_did_not_respond_is_asked_where_no_other_can_be_reached() -> None:
    cluster = Cluster(RESPONSIVE, UNTRIED)
    cluster.add(SILENT, "fetch", TIMED_OUT)
    idle = cluster.add(SILENT, "", Connection("idle"))
    assert await cluster.any_connection() is idle
    assert cluster.opened[-1] == SILENT


@pytest.mark.parametrize("problem", [ConnectionFailed("it ended"), None])
async def test_an_ended_connection_is_no_reason(problem: Exception | None) -> None:
    cluster = Cluster()
    cluster.add(SILENT, "fetch", Connection(problem=problem))
    idle = cluster.add(SILENT, "", Connection("idle"))
    assert await cluster.any_connection() is idle
