"""The sticky assignor: as balanced as subscriptions allow, with few moves (KIP-54).

Here: balance first, then stickiness; deterministic.
Not here: revoking partitions before others get them (`cooperative_sticky`). Results are as balanced as Java's, not
identical per member.
"""

from collections.abc import Mapping

from busway_protocol.assignors.subscription import Assignment, Subscription, TopicPartition, member_order

NAME = "sticky"


def assign(partitions_by_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> Assignment:
    """Return member id → partitions; no member could take one from another with two more."""
    if not subscriptions:
        return {}
    members = sorted(subscriptions, key=lambda member: member_order(member, subscriptions[member]))
    wanted = {member: frozenset(subscriptions[member].topics) for member in members}
    topics = sorted(frozenset().union(*wanted.values()))
    everything = [(topic, number) for topic in topics for number in range(partitions_by_topic.get(topic, 0))]
    readers = {topic: [member for member in members if topic in wanted[member]] for topic in topics}
    owner = _kept(frozenset(everything), members, wanted, subscriptions)
    owned: dict[str, set[TopicPartition]] = {member: set() for member in members}
    for partition, member in owner.items():
        owned[member].add(partition)
    free = [partition for partition in everything if partition not in owner]
    for partition in sorted(free, key=lambda partition: (len(readers[partition[0]]), partition)):
        member = min(readers[partition[0]], key=lambda candidate: len(owned[candidate]))
        owned[member].add(partition)
    _balance(owned, members, wanted, readers)
    return {member: sorted(owned[member]) for member in subscriptions}


def _kept(
    everything: frozenset[TopicPartition],
    members: list[str],
    wanted: Mapping[str, frozenset[str]],
    subscriptions: Mapping[str, Subscription],
) -> dict[TopicPartition, str]:
    """Return kept partitions by owner: the latest generation's claim counts, equal claims cancel."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member in members:
        for partition in dict.fromkeys(subscriptions[member].owned_partitions):
            if partition in everything:
                claims.setdefault(partition, []).append((subscriptions[member].generation_id, member))
    owner = {}
    for partition, made in claims.items():
        latest = max(generation for generation, _ in made)
        holders = [member for generation, member in made if generation == latest]
        if len(holders) == 1 and partition[0] in wanted[holders[0]]:
            owner[partition] = holders[0]
    return owner


def _balance(
    owned: dict[str, set[TopicPartition]],
    members: list[str],
    wanted: Mapping[str, frozenset[str]],
    readers: Mapping[str, list[str]],
) -> None:
    """Move partitions along chains until no chain helps. Each lowers the sum of squared loads, so this ends."""
    stuck: set[str] = set()
    while True:
        poor = min(
            (member for member in members if member not in stuck), key=lambda member: len(owned[member]), default=None
        )
        if poor is None:
            return
        chain = _chain_to(poor, owned, wanted, readers)
        if chain is None:
            stuck.add(poor)
            continue
        stuck.clear()
        for giver, partition, taker in chain:
            owned[giver].remove(partition)
            owned[taker].add(partition)


def _chain_to(
    poor: str,
    owned: Mapping[str, set[TopicPartition]],
    wanted: Mapping[str, frozenset[str]],
    readers: Mapping[str, list[str]],
) -> list[tuple[str, TopicPartition, str]] | None:
    """Return the shortest chain that moves a partition to `poor` from a member with two more."""
    came: dict[str, tuple[str, TopicPartition, str]] = {}
    frontier = [poor]
    seen = {poor}
    while frontier:
        following: list[str] = []
        for taker in frontier:
            for giver in sorted({member for topic in wanted[taker] for member in readers[topic]} - seen):
                partition = max(
                    (owned_partition for owned_partition in owned[giver] if owned_partition[0] in wanted[taker]),
                    default=None,
                )
                if partition is None:
                    continue
                seen.add(giver)
                came[giver] = (giver, partition, taker)
                following.append(giver)
        rich = max(following, key=lambda member: len(owned[member]), default=None)
        if rich is not None and len(owned[rich]) >= len(owned[poor]) + 2:
            chain = []
            while rich != poor:
                step = came[rich]
                chain.append(step)
                rich = step[2]
            return chain
        frontier = following
    return None
