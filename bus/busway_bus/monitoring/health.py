"""Readiness of a node.

Here: reasons why it cannot serve all its clients.
Not here: HTTP (`http`).
"""

from busway_bus.handlers.common.context import NodeServices


def problems(node: NodeServices) -> list[str]:
    """List the reasons, none if the node is ready."""
    reasons = []
    if (disk := node.replicas.disk_problem) is not None:
        reasons.append(disk)
    offline = node.replicas.local.awaited()
    if offline:
        first = f"{offline[0][0]}-{offline[0][1]}"
        reasons.append(f"{len(offline)} partitions are offline, {first} first; see the broker's log")
    coordinators = (
        ("group coordinator", node.groups.runtime),
        ("transaction coordinator", node.transactions.runtime),
        ("share coordinator", node.share_states.runtime),
    )
    return reasons + [f"the {name} is loading" for name, runtime in coordinators if runtime.loading]
