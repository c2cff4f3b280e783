"""The broker's bounds of group settings.

Here: the keys of minima and maxima, their check at start.
Not here: the keys of groups (`group_configs`).
"""

from collections.abc import Callable
from typing import Any, Final

from busway_bus.kernel.config_def import ConfigError, ConfigKey, ConfigType

_BOUNDED: Final[tuple[tuple[str, str, int, int, int | None, int | None], ...]] = (
    ("consumer", "assignment.interval.ms", 0, 15_000, 0, None),
    ("consumer", "heartbeat.interval.ms", 5000, 15_000, 1, None),
    ("consumer", "session.timeout.ms", 45_000, 60_000, 1, None),
    ("share", "assignment.interval.ms", 0, 15_000, 0, None),
    ("share", "heartbeat.interval.ms", 5000, 15_000, 1, None),
    ("share", "session.timeout.ms", 45_000, 60_000, 1, None),
)
"""Kind of group, setting, default minimum and maximum, range of both."""
_RANGES: Final[tuple[tuple[str, int, tuple[int, int], int, tuple[int, int]], ...]] = (
    ("delivery.count.limit", 2, (2, 5), 10, (5, 25)),
    ("partition.max.record.locks", 100, (100, 2000), 4000, (2000, 10_000)),
    ("record.lock.duration.ms", 15_000, (1000, 30_000), 60_000, (30_000, 3_600_000)),
)
"""Share groups' settings, with default and range of minimum, then maximum."""


def bounds_of(name: str) -> tuple[str, str] | None:
    kind, _, setting = name.partition(".")
    bounded = (kind, setting) in {row[:2] for row in _BOUNDED} or (
        kind == "share" and setting in {row[0] for row in _RANGES}
    )
    return (f"group.{kind}.min.{setting}", f"group.{kind}.max.{setting}") if bounded else None


def _keys() -> list[ConfigKey]:
    rows = [
        *((kind, setting, low, (at_least, at_most), high, (at_least, at_most))
          for kind, setting, low, high, at_least, at_most in _BOUNDED),
        *(("share", *row) for row in _RANGES),
    ]  # fmt: skip
    return [
        ConfigKey(
            name=f"group.{kind}.{word}.{setting}",
            type=ConfigType.INT,
            default=default,
            doc=f"{what} value of a group's {kind}.{setting}, and of the broker's group.{kind}.{setting}.",
            at_least=allowed[0],
            at_most=allowed[1],
        )
        for kind, setting, low, of_low, high, of_high in rows
        for word, what, default, allowed in (("min", "Smallest", low, of_low), ("max", "Largest", high, of_high))
    ]


BOUND_CONFIGS: Final = tuple(_keys())


def check_together(get: Callable[[str], Any]) -> None:
    """Check that the broker's settings fit together, in Kafka's words."""
    settings = [(kind, setting) for kind, setting, *_ in _BOUNDED] + [("share", row[0]) for row in _RANGES]
    for kind, setting in settings:
        own, low, high = (f"group.{kind}.{word}{setting}" for word in ("", "min.", "max."))
        _need(get(high) >= get(low), high, f"must be greater than or equal to {low}")
        _need(get(own) >= get(low), own, f"must be greater than or equal to {low}")
        _need(get(own) <= get(high), own, f"must be less than or equal to {high}")
    for kind in ("consumer", "share"):
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        _need(get(heartbeat) < get(session), heartbeat, f"must be less than {session}")
    sessions, size = "group.share.max.share.sessions", "group.share.max.size"
    _need(get(sessions) >= get(size), sessions, f"must be greater than or equal to {size}")


def _need(fits: bool, name: str, what: str) -> None:
    if not fits:
        raise ConfigError(name, what, f"{name} {what}")
