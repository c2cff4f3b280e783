"""Requests in flight: one at a time to each node, as in Kafka's `RequestManager`.

Here: correlation, timeouts, backoff.
Not here: the requests.
"""

from typing import NamedTuple


class _Flight(NamedTuple):
    correlation: int
    until_ms: int


class Requests:
    __slots__ = ("_backing_off", "_flights", "_next", "backoff_ms", "timeout_ms")

    def __init__(self, timeout_ms: int, backoff_ms: int) -> None:
        self.timeout_ms, self.backoff_ms = timeout_ms, backoff_ms
        self._flights: dict[int, _Flight] = {}
        self._backing_off: dict[int, int] = {}
        self._next = 0

    def may_send(self, node_id: int, now_ms: int) -> bool:
        return node_id not in self._flights and self._backing_off.get(node_id, now_ms) <= now_ms

    @property
    def any_under_way(self) -> bool:
        return bool(self._flights)

    def sent(self, node_id: int, now_ms: int) -> int:
        assert node_id not in self._flights, f"a request to node {node_id} is under way"
        self._next += 1
        self._flights[node_id] = _Flight(self._next, now_ms + self.timeout_ms)
        return self._next

    def answered(self, correlation: int) -> int | None:
        """Complete a request; return its node, None if it was given up."""
        for node_id, flight in self._flights.items():
            if flight.correlation == correlation:
                del self._flights[node_id]
                return node_id
        return None

    def back_off(self, node_id: int, now_ms: int) -> None:
        self._backing_off[node_id] = now_ms + self.backoff_ms

    def expire(self, now_ms: int) -> None:
        """Give up requests that timed out, and back off from their nodes."""
        for node_id, flight in list(self._flights.items()):
            if flight.until_ms <= now_ms:
                del self._flights[node_id]
                self.back_off(node_id, now_ms)

    def forget(self) -> None:
        """Give up all requests, after a change of role. Ids are not reused."""
        self._flights.clear()
        self._backing_off.clear()

    def is_left_alone(self, node_id: int, now_ms: int) -> bool:
        return self._backing_off.get(node_id, now_ms) > now_ms

    def wake_ms(self, now_ms: int) -> int | None:
        times = [flight.until_ms for flight in self._flights.values()]
        times += [until for node_id, until in self._backing_off.items() if until > now_ms]
        return min(times, default=None)
