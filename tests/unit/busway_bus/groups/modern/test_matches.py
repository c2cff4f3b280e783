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


def resolve(driver: Driver, resolved: dict[str, frozenset[str]], *, last: bool = True) -> list[str]:
    """What is written of it, by regular expression."""
    version = driver.group._topics.version if last else None
    decision = driver.shard.resolve("g", resolved, version, driver.now)
    driver.carry_out(decision)
    return [key.regular_expression for key, _ in decision.records if type(key) is ConsumerGroupRegularExpressionKey]


def test_equal_matches_are_held_once_and_counted() -> None:
    """Three patterns match the same thousand topics; what they take is given back when the last of them goes."""
    machine = driver()
    join(machine, "x.*", "y.*", "z.*")
    used = machine.group._usage.held
    tracemalloc.start()
    resolve(machine, {regex: frozenset(ALL) for regex in ("x.*", "y.*", "z.*")})
    gc.collect()
    took = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    held = machine.group._usage.held - used
    assert took <= held <= 3 * took + NAME_BYTES * len(ALL)
    assert held < 2 * NAME_BYTES * len(ALL)
    assert len({id(resolved.topics) for resolved in machine.group.resolved.values()}) == 1
    for regex in ("x.*", "y.*", "z.*"):
        assert machine.group.reads("000001")
        machine.consumer_heartbeat(f"m{regex}", epoch=-1)
    assert not machine.group.reads("000001")
    assert machine.group._usage.held < used


def test_only_what_has_changed_is_written() -> None:
    """And the group's epoch goes up for nothing else; what is resolved in parts is not asked for before the last of them."""
    machine = driver()
    join(machine, "x.*", "y.*")
    assert resolve(machine, {"x.*": ALL}, last=False) == ["x.*"]
    assert resolve(machine, {"y.*": ALL}) == ["y.*"]
    epoch = machine.group.epoch
    assert resolve(machine, {"x.*": frozenset(ALL), "y.*": frozenset(ALL)}) == []
    assert machine.group.epoch == epoch
    assert resolve(machine, {"x.*": ALL, "y.*": ALL - {"000001"}}) == ["y.*"]
    assert machine.group.epoch == epoch + 1
    machine.now += 700_000
    asked = machine.consumer_heartbeat(
        "mx.*", epoch=machine.group.members["mx.*"].epoch, topics=(), regex="x.*"
    ).unresolved
    assert asked == ("x.*", "y.*"), "it is long ago"
    assert resolve(machine, {"x.*": ALL, "y.*": ALL - {"000001"}}) == []
    machine.now += 20_000
    assert (
        machine.consumer_heartbeat("mx.*", epoch=machine.group.members["mx.*"].epoch, topics=(), regex="x.*").unresolved
        == ()
    )


def test_a_pattern_that_matches_more_than_there_is_room_for_is_refused_by_name() -> None:
    """Its members get the error, others go on; it counts again when no member has had it for a while, or when it fits."""
    machine = driver()
    join(machine, "x.*")
    wide: Any = frozenset(f"{at}" for at in range(GROUP_BYTES_MAX // NAME_BYTES))
    assert resolve(machine, {"x.*": wide}) == []
    assert "x.*" not in machine.group.resolved
    for name in ("mx.*", "another"):
        with pytest.raises(KafkaError, match=r"`x\.\*`") as refused:
            machine.consumer_heartbeat(name, topics=(), regex="x.*")
        assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    machine.consumer_heartbeat("a", topics="t")
    machine.consumer_heartbeat("mx.*", epoch=-1)
    join(machine, "x.*")
    assert resolve(machine, {"x.*": ALL}) == ["x.*"]
    join(machine, "x.*")
