"""What a voter's driver passes on to the metadata's owner."""

from types import SimpleNamespace
from typing import Any, cast

from busway_bus.quorum.driver import QuorumDriver


def test_a_truncation_that_ends_after_the_driver_starts_no_reader() -> None:
    """The files are about to be closed; until then what is left is read again."""
    committed: list[int] = []
    for is_closed in (False, True):
        driver = SimpleNamespace(
            _closed=is_closed,
            _owner=SimpleNamespace(committed=committed.append),
            core=SimpleNamespace(high_watermark=7),
        )
        QuorumDriver._truncated(cast("Any", driver))
    assert committed == [7]
