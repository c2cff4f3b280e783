"""What regular expressions match is held once for all that match the same, counted, bounded, and written where it changes."""

import gc
import tracemalloc
from typing import Any

import pytest
from tests.unit.busway_bus.groups.modern.test_balance import Driver

from busway_bus.groups.modern.records import ConsumerGroupRegularExpressionKey
from busway_bus.kernel.limits import GROUP_BYTES_MAX, NAME_BYTES
from busway_protocol.errors import ErrorCode, KafkaError

ALL = frozenset(f"{at:06}" for at in range(1_000))


def driver() -> Driver:
    made = Driver(100, {"t": 1})
    made.consumer_heartbeat("a", topics="t")
    return made


def join(driver: Driver, *regexes: str) -> None:
    for regex in regexes:
        driver.consumer_heartbeat(f"m{regex}", topics=(), regex=regex)


def resolve(driver: Driver, found: dict[str, frozenset[str]], *, last: bool = True) -> list[str]:
    """What is written of it, by regular expression."""
    version = driver.group._topics.version if last else None
    decision = driver.shard.resolve("g", found, version, driver.now)
    driver.carry_out(decision)
    return [key.regular_expression for key, _ in decision.records if type(key) is ConsumerGroupRegularExpressionKey]


def test_equal_matches_are_held_once_and_counted() -> None:
    """Three patterns match the same thousand topics; what they take is given back when the last of them goes."""
    one = driver()
    join(one, "x.*", "y.*", "z.*")
    used = one.group._usage.held
    tracemalloc.start()
    resolve(one, {regex: frozenset(ALL) for regex in ("x.*", "y.*", "z.*")})
    gc.collect()
    took = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    held = one.group._usage.held - used
    assert took <= held <= 3 * took + NAME_BYTES * len(ALL)
    assert held < 2 * NAME_BYTES * len(ALL)
    assert len({id(resolved.topics) for resolved in one.group.resolved.values()}) == 1
    for regex in ("x.*", "y.*", "z.*"):
        assert one.group.reads("000001")
        one.consumer_heartbeat(f"m{regex}", epoch=-1)
    assert not one.group.reads("000001")
    assert one.group._usage.held < used


def test_only_what_has_changed_is_written() -> None:
    """And the group's epoch goes up for nothing else; what is resolved in parts is not asked for before the last of them."""
    one = driver()
    join(one, "x.*", "y.*")
    assert resolve(one, {"x.*": ALL}, last=False) == ["x.*"]
    assert resolve(one, {"y.*": ALL}) == ["y.*"]
    epoch = one.group.epoch
    assert resolve(one, {"x.*": frozenset(ALL), "y.*": frozenset(ALL)}) == []
    assert one.group.epoch == epoch
    assert resolve(one, {"x.*": ALL, "y.*": ALL - {"000001"}}) == ["y.*"]
    assert one.group.epoch == epoch + 1
    one.now += 700_000
    asked = one.consumer_heartbeat("mx.*", epoch=one.group.members["mx.*"].epoch, topics=(), regex="x.*").unresolved
    assert asked == ("x.*", "y.*"), "it is long ago"
    assert resolve(one, {"x.*": ALL, "y.*": ALL - {"000001"}}) == []
    one.now += 20_000
    assert (
        one.consumer_heartbeat("mx.*", epoch=one.group.members["mx.*"].epoch, topics=(), regex="x.*").unresolved == ()
    )


def test_a_pattern_that_matches_more_than_there_is_room_for_is_refused_by_name() -> None:
    """Its members are told, others go on; it counts again when nobody has had it for a while, or when it fits."""
    one = driver()
    join(one, "x.*")
    wide: Any = frozenset(f"{at}" for at in range(GROUP_BYTES_MAX // NAME_BYTES))
    assert resolve(one, {"x.*": wide}) == []
    assert "x.*" not in one.group.resolved
    for name in ("mx.*", "another"):
        with pytest.raises(KafkaError, match=r"`x\.\*`") as refused:
            one.consumer_heartbeat(name, topics=(), regex="x.*")
        assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    one.consumer_heartbeat("a", topics="t")
    one.consumer_heartbeat("mx.*", epoch=-1)
    join(one, "x.*")
    assert resolve(one, {"x.*": ALL}) == ["x.*"]
    join(one, "x.*")
