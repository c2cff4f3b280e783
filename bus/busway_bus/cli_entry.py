"""The names that the `busway` command needs of the broker.

Here: names, imported only to run a broker.
"""

from busway_bus.formatting import check_cluster_id, format_node, properties_of, random_cluster_id
from busway_bus.kernel.config import BrokerConfig
from busway_bus.node import Node
from busway_bus.run import CANNOT_START, read_properties, run, serve
from busway_bus.testing.ports import HeldPort

__all__ = [
    "CANNOT_START",
    "BrokerConfig",
    "HeldPort",
    "Node",
    "check_cluster_id",
    "format_node",
    "properties_of",
    "random_cluster_id",
    "read_properties",
    "run",
    "serve",
]
