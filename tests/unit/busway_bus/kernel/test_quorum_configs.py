"""Roles and voters of a node."""

import pytest

from busway_bus.kernel.config_def import ConfigError, ConfigValue
from busway_bus.kernel.quorum_configs import check_roles, is_clustered, is_controller_alone, roles_of, voters_of

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
    """A node of both roles, alone or among its voters, a controller among its voters, a broker beside them."""
    check_roles({}, 1)
    check_roles({"controller.quorum.voters": ["1@a:9093"]}, 1)
    check_roles(CONTROLLER, 2)
    check_roles({**CONTROLLER, "process.roles": ["broker", "controller"]}, 2)
    check_roles({"process.roles": ["broker"], "controller.quorum.voters": ["1@a:9093"]}, 2)


def test_which_brokers_are_in_clusters() -> None:
    """A node that is the only voter is not; a controller is no broker."""
    assert not is_clustered({})
    assert not is_clustered({"controller.quorum.voters": ["1@a:9093"]})
    assert not is_clustered(CONTROLLER)
    assert is_clustered({**CONTROLLER, "process.roles": ["broker", "controller"]})
    assert is_clustered({"process.roles": ["broker"], "controller.quorum.voters": ["1@a:9093"]})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"process.roles": ["broker"]}, "a broker whose controllers are other nodes needs the voters as id@host:port"),
        ({"process.roles": ["broker"], "controller.quorum.voters": ["1@a:1"]}, "1, is a broker alone, but among"),
        ({"controller.quorum.voters": ["1@a:1", "2@b:2"]}, "a controller needs the names of its listeners"),
        ({"controller.quorum.bootstrap.servers": ["a:1", "b:2"]}, "2 controllers are named, but voters that change"),
        ({**CONTROLLER, "controller.quorum.voters": []}, "a controller needs the voters as id@host:port"),
        ({**CONTROLLER, "controller.quorum.voters": ["2@b:2"]}, r"this node, 1, is not among the voters \[2\]"),
        ({**CONTROLLER, "controller.listener.names": []}, "a controller needs the names of its listeners"),
    ],
)
def test_roles_that_are_not(values: dict[str, ConfigValue], text: str) -> None:
    """Each is refused with what to set instead."""
    with pytest.raises(ConfigError, match=text):
        check_roles(values, 1)
