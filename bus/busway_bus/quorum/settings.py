"""Time-outs and sizes of the quorum.

Here: settings under Kafka's names.
Not here: reading them from a file (`kernel.config`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    """Times in ms under Kafka's names (`controller.quorum.*`), with Kafka's defaults.

    Attributes:
        election_timeout_ms: bound of an election; each node adds a random time of up to as much.
        fetch_timeout_ms: how long a voter fetches without a response before it looks for another leader.
        election_backoff_max_ms: backoff of the last preferred successor after a resignation.
        retry_backoff_ms: pause before the next request to a node that gave no response.
        fetch_max_wait_ms: how long the leader holds a fetch without news.
        fetch_max_bytes: bytes of the log in one response, at least one batch.
        fetch_snapshot_max_bytes: bytes of a snapshot in one response.
    """

    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1_048_576
    fetch_snapshot_max_bytes: int = 1_048_576
