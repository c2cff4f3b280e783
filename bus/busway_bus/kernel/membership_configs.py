"""The settings of a broker's membership in its cluster, with Kafka's names, types and defaults.

Here: the keys. A node that is its own controller has no use for them.
Not here: their use (`nodes.lifecycle`, `nodes.channels`, `controller.heartbeats`).
"""

from collections.abc import Sequence
from typing import Final

from busway_bus.kernel.config_def import ConfigKey, ConfigType


def _key(name: str, default: int, doc: str, *, kind: ConfigType = ConfigType.INT) -> ConfigKey:
    return ConfigKey(name=name, type=kind, default=default, doc=doc, at_least=1)


MEMBERSHIP_CONFIGS: Final[Sequence[ConfigKey]] = (
    _key("broker.heartbeat.interval.ms", 2000, "Time in ms between two heartbeats of a broker to its controller."),
    _key(
        "broker.session.timeout.ms",
        9000,
        "Time in ms without heartbeats after which the controller fences a broker; its leaderships move to others.",
    ),
    _key("controller.socket.timeout.ms", 30_000, "Longest wait, in ms, of a broker for a response of its controller."),
    _key(
        "initial.broker.registration.timeout.ms",
        60_000,
        "How long, in ms, a starting broker tries to register with its controller.",
    ),
    _key(
        "socket.connection.setup.timeout.ms",
        10_000,
        "Longest wait, in ms, of a broker for a connection to another broker.",
        kind=ConfigType.LONG,
    ),
)
