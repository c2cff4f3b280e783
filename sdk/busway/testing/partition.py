"""Network partitions of a test's cluster.

Here: `Partition`; which directions are cut between groups of nodes.
Not here: keeping back what is sent (`busway_bus.testing.local_network`).
"""

from collections.abc import Collection, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TypeAlias

_CLIENTS: Final = 0
Member: TypeAlias = int | Literal["clients"]
"""A node's id, or all clients of the cluster."""
Group: TypeAlias = Member | Iterable[Member]
Direction: TypeAlias = tuple[int, int]
"""Sender and receiver; 0 is the clients."""


class Network(Protocol):
    """The network of a cluster's nodes."""

    async def cut(self, directions: Collection[Direction]) -> None:
        """Keep back what is sent in these directions."""

    async def heal(self, directions: Collection[Direction] | None = None) -> None:
        """Deliver what was kept back; None heals all directions."""


class Partition:
    """A partition of the network. Await it, or use it as an async context manager, which heals it."""

    def __init__(self, network: Network, directions: Collection[Direction]) -> None:
        self._network, self._directions = network, directions
        self._cut = False

    async def _begin(self) -> "Partition":
        if not self._cut:
            self._cut = True
            await self._network.cut(self._directions)
        return self

    async def heal(self) -> None:
        """Deliver what was kept back. Other partitions stay."""
        if self._cut:
            self._cut = False
            await self._network.heal(self._directions)

    def __await__(self) -> Generator[Any, None, "Partition"]:
        return self._begin().__await__()

    async def __aenter__(self) -> "Partition":
        return await self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.heal()


def directions_between(node_ids: Sequence[int], groups: Sequence[Group], *, one_way: bool = False) -> list[Direction]:
    """Return the directions that are cut.

    Args:
        groups: one is cut from all other nodes; of several, each from each other. Who is in none reaches all.
        one_way: only what the first group sends.

    Raises:
        ValueError: an unknown member, one of two groups, or nothing is cut.
    """
    members = [_members(node_ids, group) for group in groups]
    if len(members) == 1:
        members.append({node_id for node_id in node_ids if node_id not in members[0]})
    every = [member for group in members for member in group]
    if len(set(every)) < len(every):
        raise ValueError(f"partition({', '.join(map(repr, groups))}): a member is in two groups")
    senders = members[:1] if one_way else members
    directions = [
        (sender, receiver)
        for group in senders
        for sender in sorted(group)
        for other in members
        if other is not group
        for receiver in sorted(other)
    ]
    if not directions:
        raise ValueError(f'partition({", ".join(map(repr, groups))}) cuts nothing: name groups of nodes, or "clients"')
    return directions


def _members(node_ids: Sequence[int], group: Group) -> set[int]:
    members = [group] if isinstance(group, int | str) else list(group)
    for member in members:
        if member != "clients" and member not in node_ids:
            raise ValueError(
                f'{member!r} is no member of this cluster: give {", ".join(map(str, node_ids))} or "clients"'
            )
    return {_CLIENTS if member == "clients" else int(member) for member in members}
