"""Changes for listeners."""

import pytest

from busway.app.feed import Feed


def test_a_slow_listener_loses_its_oldest_changes() -> None:
    """Its queue is bounded, and publishing never waits; a listener that has gone gets nothing."""
    feed: Feed[int] = Feed(queue=2)
    with feed.listening() as slow, feed.listening(maxsize=10) as fast:
        for number in range(5):
            feed.put(number)
    feed.put(5)
    assert [slow.get_nowait() for _ in range(slow.qsize())] == [3, 4]
    assert [fast.get_nowait() for _ in range(fast.qsize())] == [0, 1, 2, 3, 4]


def test_a_queue_has_a_bound() -> None:
    """Of size 0 it would be endless; refused, in every call."""
    with pytest.raises(ValueError, match="maxsize=0"), Feed[int](queue=0).listening():
        pass
    with pytest.raises(ValueError, match="maxsize=-1"), Feed[int]().listening(maxsize=-1):
        pass
