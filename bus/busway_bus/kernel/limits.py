"""Every bound in the broker, in one place, each with its reason.

What lives here: numbers that keep one peer, one topic or one mistake from taking the whole node. What does not:
settings that an operator tunes (those are in `config`, under Kafka's names); a bound here is one that nobody should
need to touch.
"""

from typing import Final

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Default of socket.request.max.bytes: Kafka's own cap, so that no client which works there is refused here."""

CONNECTIONS_MAX: Final = 10_000
"""Default of max.connections. Kafka has none; a reconnect storm must not exhaust the file descriptors of a laptop."""

PARTITIONS_PER_TOPIC_MAX: Final = 10_000
"""One CreateTopics call may not fill the disk with directories; above this, add topics."""

TOPIC_NAME_CHARS_MAX: Final = 249
"""Kafka's limit: the directory name `topic-partition` plus `.delete` suffix must fit a file name of 255 bytes."""

RESPONSE_BYTES_QUEUED_MAX: Final = 8 * 1024 * 1024
"""A connection that does not read its answers stops being read from when this much output waits for it."""

PARTIAL_REQUEST_TIMEOUT_MS: Final = 60_000
"""A request that announced its size must arrive within this time; a slow trickle would hold the buffer for ever."""

DECOMPRESSION_FACTOR_MAX: Final = 16
"""Where the broker opens a batch (produce, timestamp look-up, compaction) it inflates at most this times
max.message.bytes: honest data compresses well below it, bombs reach 1,000 and more."""

SYNCS_AT_ONCE_MAX: Final = 8
"""Logs that are synced beside each other: a disk takes so many at little more than the price of one, and a slow one stops no other."""

RECORDS_ON_LOOP_MAX: Final = 1_000
"""Records of one request that are looked through at once, about half a millisecond; more wait for a thread, a slice at a time."""

INFLATED_ON_LOOP_MAX: Final = 1024 * 1024
"""Bytes of records that are taken out of their codec and looked through at once: a batch that no client's default exceeds."""

INSPECTIONS_MAX: Final = 4
"""Batches that are out of their codec beside the event loop at a time: with the factor below, at most 64 MB by default."""

FETCH_PARTITIONS_BYTES_MAX: Final = 55 * 1024 * 1024
"""Default of fetch.max.bytes: a fetch response never grows past it, whatever the client asks for."""

BAD_PEER_LOG_INTERVAL_MS: Final = 1_000
"""One log line per peer address and reason in this time: a scanner must not fill the disk with our complaints."""

PENDING_GROUP_MEMBERS_MAX: Final = 10_000
"""Members that were handed an id and have not come back with it yet, for one group."""
