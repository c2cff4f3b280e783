"""Connections to the other voters: Kafka's protocol over `busway.net`.

Here: for each voter one connection for fetches, which may be held there, and one for all else, with one request in
flight on each.
Not here: retries (`core`), the meaning of a response. No call waits longer than the quorum's request timeout; a
connection that timed out is not used again. After a lost connection the node is probed: a killed process refuses the next,
or its address is no more.
"""

import asyncio
from collections.abc import Mapping

from busway.errors import BuswayError, ConnectionFailed
from busway.net.connection import Connection
from busway.net.probing import is_absent
from busway_bus.quorum.ready import QuorumRequest, QuorumResponse, Refused
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, ProtocolError
from busway_protocol.messages.fetch import FetchRequest
from busway_protocol.messages.metadata_snapshots import FetchSnapshotRequest
from busway_protocol.messages.quorum import VoteRequest, VoteResponse

PRE_VOTE_SINCE = 2
"""The version of Vote with pre-votes (KIP-996)."""
PROBE_S = 0.5
"""Bound of a probe, in s."""


class _Line:
    """One connection, opened on first use."""

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        self._host, self._port, self._client_id, self._timeout_s = host, port, client_id, timeout_s
        self._connection: Connection | None = None
        self._busy = False

    async def ask(self, request: QuorumRequest) -> QuorumResponse | Refused | None:
        """Send a request; None without a response.

        A new request while another is pending closes the connection of that.
        """
        if self._busy:
            self.close()
        connection, left_s = self._connection, self._timeout_s
        self._busy = True
        try:
            if connection is None or not connection.open:
                connection = self._connection = Connection(
                    self._host, self._port, client_id=self._client_id, timeout_s=self._timeout_s, of_client=False
                )
                async with asyncio.timeout(self._timeout_s) as limit:
                    await connection.connect()
                left_s = (limit.when() or 0.0) - asyncio.get_running_loop().time()
            if not _fits(request, connection):
                return VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, topics=[])
            answer: QuorumResponse = await connection.request(request, timeout_s=left_s)
            return answer
        except (BuswayError, ProtocolError, TimeoutError, OSError) as problem:
            if connection is not None:
                connection.close()
            if not isinstance(problem, ConnectionFailed) or connection is not self._connection:
                return None
            return Refused.REFUSED if await is_absent(self._host, self._port, PROBE_S) else None
        finally:
            if self._connection is connection:
                self._busy = False

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._busy = False
        if connection is not None:
            connection.close()


def _fits(request: QuorumRequest, connection: Connection) -> bool:
    if not isinstance(request, VoteRequest) or not request.topics[0].partitions[0].pre_vote:
        return True
    return connection.version(ApiKey.VOTE) >= PRE_VOTE_SINCE


class Peers:
    """Sends requests to the other voters.

    Args:
        addresses: host and port by voter.
        timeout_ms: for connecting and the response together.
    """

    def __init__(self, node_id: int, addresses: Mapping[int, tuple[str, int]], timeout_ms: int) -> None:
        client_id = f"raft-client-{node_id}"
        self._lines = {
            (voter, fetches): _Line(host, port, client_id, timeout_ms / 1000)
            for voter, (host, port) in addresses.items()
            if voter != node_id
            for fetches in (False, True)
        }

    async def ask(self, node_id: int, request: QuorumRequest) -> QuorumResponse | Refused | None:
        return await self._lines[node_id, isinstance(request, FetchRequest | FetchSnapshotRequest)].ask(request)

    async def close(self) -> None:
        for line in self._lines.values():
            line.close()
