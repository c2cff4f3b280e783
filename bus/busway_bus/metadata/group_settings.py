"""The effective value of a group's setting: its own, or the broker's.

Here: the lookup.
Not here: the keys (`kernel.group_configs`), changing them (`controller.configs`).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.group_configs import group_default, in_bounds, parse_group_config
from busway_bus.metadata.image import ClusterImage

GroupSettings = Callable[[str, str], Any]
"""(group id, name) → typed value."""
_parse = lru_cache(maxsize=1024)(parse_group_config)


def group_settings(config: BrokerConfig, image: Callable[[], ClusterImage]) -> GroupSettings:
    def setting(group_id: str, name: str) -> Any:
        own = image().group_configs(group_id).get(name)
        return group_default(config, name) if own is None else in_bounds(config, name, _parse(name, own))

    return setting
