"""Reasons of a group's rebalances, from its coordinator.

Here: `ExplanationsAdmin`, a base of `Admin`. Only Busway's brokers record them, as the setting `busway.rebalances` of a
group in DescribeConfigs; Apache Kafka's omit the unknown name.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.cluster.coordinator import ask_coordinator
from busway.errors import BrokerError, UnsupportedByBroker
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

GROUP: Final = 32
REBALANCES: Final = "busway.rebalances"


@dataclass(frozen=True, slots=True)
class RebalanceReason:
    """Event of a member, or of the group if that is empty; `reason` is the member's or broker's text."""

    what: str
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """A partition that changed its member; None is no member."""

    topic: str
    partition: int
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance of a group.

    Attributes:
        at_ms: start, in ms since 1970.
        kind: of the group then: classic, consumer and so on.
        epoch: the resulting generation or assignment epoch; -1 while in progress.
        members: their number after it.
        took_ms: until the assignment, in a consumer group until all members had it; None in progress or if superseded.
        reasons_left_out: the number of others.
        moves_complete: `moves` has all.
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
    _cluster: ClusterClient

    async def explain_group(self, group_id: str) -> list[Rebalance]:
        """Return a group's last rebalances since its coordinator started, oldest first.

        Raises:
            BrokerError: the group is unknown.
            UnsupportedByBroker: the coordinator records none, as Apache Kafka's.
        """
        resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group_id, configuration_keys=[REBALANCES])
        response = await ask_coordinator(self._cluster, group_id, DescribeConfigsRequest(resources=[resource]))
        (result,) = response.results
        code = error_for(result.error_code)
        texts = [config.value for config in result.configs if config.name == REBALANCES]
        if code is ErrorCode.INVALID_REQUEST or (code is ErrorCode.NONE and not texts):
            raise UnsupportedByBroker(
                f"the coordinator of group {group_id} does not keep the reasons of rebalances: that takes a broker of Busway, of a version that has "
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
                item["what"],
                item.get("member", ""),
                item.get("client", ""),
                item.get("host", ""),
                item.get("instance"),
                item.get("reason"),
            )
            for item in entry["reasons"]
        ],
        entry["reasons_left_out"],
        [PartitionMove(item["topic"], item["partition"], item["from"], item["to"]) for item in entry["moves"]],
        entry["moves_complete"],
    )
