"""The times and sizes of the quorum.

What lives here: settings under Kafka's names. What does not: reading them from a file (`kernel.config`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    """Times in ms under Kafka's names (`controller.quorum.*`), with Kafka's defaults.

    Attributes:
        election_timeout_ms: how long an election may take; each node waits up to twice as long, by chance.
        fetch_timeout_ms: how long a voter fetches in vain before it looks for another leader.
        election_backoff_max_ms: how long the last of the preferred successors waits after a leader has resigned.
        request_timeout_ms, retry_backoff_ms: how long an answer may take, and how long a node is left alone that gave none.
        fetch_max_wait_ms: how long a fetch waits at the leader when there is nothing new.
        fetch_max_bytes: how much of the log one answer carries, one batch at least.
    """

    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1_048_576
