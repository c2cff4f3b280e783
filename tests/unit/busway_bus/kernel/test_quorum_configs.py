"""Roles and voters of a node."""

import pytest

from busway_bus.kernel.config_def import ConfigError, ConfigValue
from busway_bus.kernel.quorum_configs import check_roles, is_controller_alone, roles_of, voters_of

CONTROLLER: dict[str, ConfigValue] = {
    "process.roles": ["controller"],
    "controller.quorum.voters": ["1@a:9093", " 2@[::1]:9094"],
    "controller.listener.names": ["CONTROLLER"],
}


def test_a_node_without_roles_has_both() -> None:
    """It is its own controller."""
    assert roles_of({}) == {"broker", "controller"}
    assert not is_controller_alone({})
    assert is_controller_alone(CONTROLLER)


def test_voters_are_parsed_by_id() -> None:
    """An IPv6 address is written in brackets."""
    assert voters_of(CONTROLLER) == {1: ("a", 9093), 2: ("::1", 9094)}
    assert voters_of({}) == {}


@pytest.mark.parametrize("text", ["a:9093", "1@a", "1@:9093", "x@a:9093", "1@a:port", "1@a:0", "1@a:65536", ""])
def test_a_voter_that_is_no_address(text: str) -> None:
    """The error quotes it."""
    with pytest.raises(ConfigError, match="is not id@host:port"):
        voters_of({"controller.quorum.voters": [text]})


def test_a_voter_is_named_once() -> None:
    """Two addresses of one id cannot both be right."""
    with pytest.raises(ConfigError, match="node 1 is named twice"):
        voters_of({"controller.quorum.voters": ["1@a:1", "01@b:2"]})


def test_roles_that_are_served() -> None:
    """A combined node with one controller, and a controller among its voters."""
    check_roles({}, 1)
    check_roles({"controller.quorum.voters": ["1@a:9093"]}, 1)
    check_roles(CONTROLLER, 2)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"process.roles": ["broker"]}, "a broker whose controllers are other nodes is not served yet"),
        ({"controller.quorum.voters": ["1@a:1", "2@b:2"]}, "2 controllers are named, but brokers in clusters"),
        ({"controller.quorum.bootstrap.servers": ["a:1", "b:2"]}, "2 controllers are named, but brokers in clusters"),
        ({**CONTROLLER, "controller.quorum.voters": []}, "a controller needs the voters as id@host:port"),
        ({**CONTROLLER, "controller.quorum.voters": ["2@b:2"]}, r"this node, 1, is not among the voters \[2\]"),
        ({**CONTROLLER, "controller.listener.names": []}, "a controller needs the names of its listeners"),
    ],
)
def test_roles_that_are_not(values: dict[str, ConfigValue], text: str) -> None:
    """Each is refused with what to set instead."""
    with pytest.raises(ConfigError, match=text):
        check_roles(values, 1)
