"""Shards as the coordinator has them: they notice what becomes of their groups, and do nothing else because of it.

Here: making one.
Not here: what is noticed (`test_explained`).
"""

from typing import Any

from busway_bus.groups.explained import ExplainedShard
from busway_bus.groups.history import History


def live_shard(**options: Any) -> ExplainedShard:
    """One whose log has been read."""
    shard = ExplainedShard(History(lambda: 0), **options)
    shard.live = True
    return shard
