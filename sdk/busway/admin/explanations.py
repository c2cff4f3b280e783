"""Why a group was balanced anew, as its coordinator tells it.

What lives here: `ExplanationsAdmin`, a part of `Admin`, and the values it returns. What does not: the CLI. Busway's brokers alone keep this:
they tell it as `busway.rebalances` among what DescribeConfigs says of a group, and Apache Kafka's, which know no such name, leave it out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.errors import BrokerError, UnsupportedByBroker
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

GROUP: Final = 32
"""The kind of resource that a group is (KIP-1043)."""
REBALANCES: Final = "busway.rebalances"


@dataclass(frozen=True, slots=True)
class RebalanceReason:
    """Something that happened to a member, or to the group where that is empty; `reason` is what the member or the broker says of it."""

    what: str
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """A partition that went from one member to another; None is nobody."""

    topic: str
    partition: int
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance of a group.

    Attributes:
        at_ms: when it began, in ms since 1970.
        kind: of the group then: classic, consumer and so on.
        epoch: the generation, or the epoch of the assignment, that it led to; -1 while it is under way.
        members: how many there are after it.
        took_ms: until the assignment was made, in a group that the coordinator balances until all members had it; None where it is under
            way, or the next one came before.
        reasons_left_out: how many more there are.
        moves_complete: whether `moves` has all of them.
    """

    at_ms: int
    kind: str
    epoch: int
    members: int
    took_ms: int | None
    reasons: Sequence[RebalanceReason]
    reasons_left_out: int
    moves: Sequence[PartitionMove]
    moves_complete: bool


class ExplanationsAdmin:
    """What `Admin` does about reasons."""

    _cluster: ClusterClient

    async def explain_group(self, group_id: str) -> list[Rebalance]:
        """The last rebalances of a group since its coordinator started, the oldest first.

        Raises:
            BrokerError: nothing is known of the group.
            UnsupportedByBroker: the coordinator keeps no such log, as Apache Kafka's.
        """
        node_id = await self._cluster.find_coordinator(group_id)
        connection = await self._cluster.connection(node_id)
        resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group_id, configuration_keys=[REBALANCES])
        (result,) = (await connection.request(DescribeConfigsRequest(resources=[resource]))).results
        code = error_for(result.error_code)
        texts = [config.value for config in result.configs if config.name == REBALANCES]
        if code is ErrorCode.INVALID_REQUEST or (code is ErrorCode.NONE and not texts):
            raise UnsupportedByBroker(
                f"{connection.name} does not keep why groups were balanced anew: that takes a broker of Busway, of a version that has "
                "`busway groups explain`; Apache Kafka has it in its logs alone"
            )
        if code is not ErrorCode.NONE:
            raise BrokerError(code, f"group {group_id}", result.error_message)
        return [_rebalance(entry) for entry in json.loads(texts[0] or "[]")]


def _rebalance(entry: Mapping[str, Any]) -> Rebalance:
    return Rebalance(
        entry["at_ms"],
        entry["kind"],
        entry["epoch"],
        entry["members"],
        entry["took_ms"],
        [
            RebalanceReason(
                one["what"],
                one.get("member", ""),
                one.get("client", ""),
                one.get("host", ""),
                one.get("instance"),
                one.get("reason"),
            )
            for one in entry["reasons"]
        ],
        entry["reasons_left_out"],
        [PartitionMove(one["topic"], one["partition"], one["from"], one["to"]) for one in entry["moves"]],
        entry["moves_complete"],
    )
