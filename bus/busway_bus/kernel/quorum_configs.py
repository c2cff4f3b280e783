"""The settings of the metadata quorum: roles and voters.

Here: `process.roles` and `controller.quorum.voters`.
Not here: the keys (`broker_configs`), listeners (`config`).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from busway_bus.kernel.config_def import ConfigError, ConfigValue

BROKER, CONTROLLER = "broker", "controller"
_VOTERS: Final = "controller.quorum.voters"
_BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"


class VoterAddress(NamedTuple):
    host: str
    port: int


def roles_of(values: Mapping[str, ConfigValue]) -> frozenset[str]:
    """Return the roles of a node; both where none is set."""
    roles = values.get("process.roles")
    return frozenset(map(str, roles)) if isinstance(roles, list) else frozenset({BROKER, CONTROLLER})


def is_controller_alone(values: Mapping[str, ConfigValue]) -> bool:
    return roles_of(values) == {CONTROLLER}


def is_broker_alone(values: Mapping[str, ConfigValue]) -> bool:
    return roles_of(values) == {BROKER}


def voters_of(values: Mapping[str, ConfigValue]) -> dict[int, VoterAddress]:
    """Parse the voters, by id.

    ConfigError: one is not `id@host:port`, or is named twice.
    """
    texts = values.get(_VOTERS)
    voters: dict[int, VoterAddress] = {}
    for text in map(str, texts if isinstance(texts, list) else ()):
        voter, at, address = text.strip().partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and colon and host and voter.isdigit() and port.isdigit()) or not 0 < int(port) <= 65_535:
            raise ConfigError(_VOTERS, f"{text.strip()!r} is not id@host:port")
        if int(voter) in voters:
            raise ConfigError(_VOTERS, f"node {int(voter)} is named twice")
        voters[int(voter)] = VoterAddress(host.strip("[]"), int(port))
    return voters


def is_clustered(values: Mapping[str, ConfigValue]) -> bool:
    """Whether a broker's metadata is that of several nodes: it is one of several voters, or none."""
    return BROKER in roles_of(values) and (CONTROLLER not in roles_of(values) or len(voters_of(values)) > 1)


def check_roles(values: Mapping[str, ConfigValue], node_id: int) -> None:
    """Check roles and voters, which are static: voters that change while they run are refused."""
    roles, voters = roles_of(values), voters_of(values)
    if roles == {BROKER, CONTROLLER} and len(voters) <= 1:
        named = values.get(_BOOTSTRAP)
        if not voters and isinstance(named, list) and len(named) > 1:
            raise ConfigError(
                _BOOTSTRAP,
                f"{len(named)} controllers are named, but voters that change while they run (KIP-853) are not served "
                f"yet; name them in {_VOTERS} as id@host:port",
            )
        _check_is_voter(voters, node_id)
        return
    if not voters:
        raise ConfigError(
            _VOTERS,
            f"{'a controller' if CONTROLLER in roles else 'a broker whose controllers are other nodes'} needs the voters as id@host:port"
            f"{', itself among them' if CONTROLLER in roles else ''}; those that change while they run ({_BOOTSTRAP}, KIP-853) are not "
            f"served yet",
        )
    if CONTROLLER not in roles:
        if node_id in voters:
            raise ConfigError(
                _VOTERS,
                f"this node, {node_id}, is a broker alone, but among the voters {sorted(voters)}; set another node.id, "
                f"or process.roles=broker,controller",
            )
        return
    _check_is_voter(voters, node_id)
    if not values.get("controller.listener.names"):
        raise ConfigError(
            "controller.listener.names",
            "a controller needs the names of its listeners, such as CONTROLLER, which the other voters connect to",
        )


def _check_is_voter(voters: Mapping[int, VoterAddress], node_id: int) -> None:
    if voters and node_id not in voters:
        raise ConfigError(
            _VOTERS, f"this node, {node_id}, is not among the voters {sorted(voters)}; set node.id, or add it"
        )
