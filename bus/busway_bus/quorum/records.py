"""Control records of the quorum in the metadata log, as Kafka's.

Here: the LeaderChange record at the start of an epoch (KIP-595).
Not here: those of snapshots (`metadata.snapshot`) and voters, not written yet.
"""

import struct
from collections.abc import Iterable
from typing import Annotated, Final

from busway_protocol.compile import encode
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.control import ControlType
from busway_protocol.schema import message
from busway_protocol.schema import struct as structure
from busway_protocol.types import ZERO_UUID, BrokerId, Int16, Int32, Uuid, since

_KEY: Final = struct.Struct(">hh")
_VERSION: Final = 0
"""Version of key and value, as in Kafka 4.3.1."""


@structure
class LeaderChangeVoter:
    voter_id: Int32
    voter_directory_id: Annotated[Uuid, since(1)] = ZERO_UUID


@message(versions=(0, 1), flexible=0)
class LeaderChangeMessage:
    """A leader was elected: its voters, and those that granted the vote."""

    version: Int16
    leader_id: BrokerId
    voters: list[LeaderChangeVoter]
    granting_voters: list[LeaderChangeVoter]


def leader_change(leader_id: int, voters: Iterable[int], granting: Iterable[int], timestamp_ms: int) -> bytes:
    value = LeaderChangeMessage(
        version=_VERSION,
        leader_id=leader_id,
        voters=[LeaderChangeVoter(voter_id=voter) for voter in voters],
        granting_voters=[LeaderChangeVoter(voter_id=voter) for voter in granting],
    )
    builder = BatchBuilder(control=True)
    builder.append(timestamp_ms, _KEY.pack(_VERSION, ControlType.LEADER_CHANGE), encode(value, _VERSION))
    return builder.build()
