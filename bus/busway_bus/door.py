"""What the `busway` command needs of the broker, in one place.

What lives here: names. The command imports this module only when a broker is asked for.
"""

from collections.abc import Mapping

from busway_bus.kernel.config import BrokerConfig
from busway_bus.node import Node
from busway_bus.run import CANNOT_START, read_properties, run, serve, until_signal

__all__ = ["CANNOT_START", "Node", "config", "read_properties", "run", "serve", "until_signal"]


def config(properties: Mapping[str, str]) -> BrokerConfig:
    """As `BrokerConfig.from_properties`."""
    return BrokerConfig.from_properties(properties)
