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

RESPONSE_BYTES_MAX: Final = 96 * 1024 * 1024
"""What all connections together hold of answers that were not taken. What a fetch answers with stays in the files until there is
room for it, so this is met only where very many clients do not read, or ask for much else and do not."""

ACCEPT_RETRY_MS: Final = 1_000
"""How long nobody is let in where the system has no descriptors left: connections end in that time, and asking again costs the loop."""

COLD_READS_MAX: Final = 4
"""Slices of files that are brought into memory beside the event loop at a time: a disk has a few at work, and they take turns."""

PARTIAL_REQUEST_TIMEOUT_MS: Final = 60_000
"""A request that has begun and of which nothing more comes for so long ends its connection."""

PARTIAL_REQUEST_CONTENDED_MS: Final = 2_000
"""The same where other connections wait for the memory that it holds."""

REQUEST_BYTES_PER_S_MIN: Final = 32 * 1024
"""A request may take `PARTIAL_REQUEST_TIMEOUT_MS` and a second for so many bytes: a slow line is served, a trickle is not for ever."""

REQUEST_BYTES_MAX: Final = 96 * 1024 * 1024
"""What all connections together hold of requests that are not worked on yet, where queued.max.request.bytes does not say: with one
request of FRAME_BYTES_MAX on top, which is always let in, it leaves half of 512 MiB to everything else."""

REQUEST_BYTES_FREE: Final = 4 * 1024
"""So many bytes each connection may hold without being counted: a heartbeat is read however full the memory is."""

REQUEST_BYTES_LARGE: Final = 2 * 1024 * 1024
"""From here on a request waits for memory among large ones: twice the default of message.max.bytes."""

REQUEST_BYTES_QUEUED_MAX: Final = 1024 * 1024
"""A connection that has so many bytes waiting behind the request that is worked on is not read from."""

DECOMPRESSION_FACTOR_MAX: Final = 16
"""Where the broker opens a batch (produce, timestamp look-up, compaction) it inflates at most this times
max.message.bytes: honest data compresses well below it, bombs reach 1,000 and more."""

SYNCS_AT_ONCE_MAX: Final = 8
"""Logs that are synced beside each other: a disk takes so many at little more than the price of one, and a slow one stops no other."""

RECOVERY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Appended to one log between two producers' snapshots: what a start after a kill reads again of it at most, a tenth of a second."""

RECOVERY_BYTES_SETTLED: Final = 256 * 1024
"""The same where a log is looked at now and then (`log.retention.check.interval.ms`): ten thousand that rest are not read again."""

INFLATED_ON_LOOP_MAX: Final = 1024 * 1024
"""Bytes of records that are taken out of their codec and looked through at once: a batch that no client's default exceeds."""

INSPECTIONS_MAX: Final = 4
"""Batches that are out of their codec beside the event loop at a time: with the factor below, at most 64 MB by default."""

FETCH_PARTITIONS_BYTES_MAX: Final = 55 * 1024 * 1024
"""Default of fetch.max.bytes: a fetch response never grows past it, whatever the client asks for."""

FETCH_SESSION_PARTITIONS_MAX: Final = 200_000
"""Partitions in all fetch sessions together, each of which takes a third of a kilobyte; whoever comes when it is reached names its
partitions in every request, as clients did before there were sessions."""

BAD_PEER_LINES: Final = 5
"""Log lines about one peer's bad requests in `BAD_PEER_LOG_INTERVAL_MS`, whatever its reasons are: a scanner must not fill the disk
with our complaints."""

BAD_PEERS_LINES: Final = 20
"""The same for all peers together: they may come from as many addresses as they like."""

BAD_PEER_LOG_INTERVAL_MS: Final = 10_000

GROUPS_BYTES_MAX: Final = 64 * 1024 * 1024
"""What the members of all groups hold together: ten thousand consumers of a hundred topics each take a quarter of it."""

GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
"""What the members of one group hold: their leader gets all of it in one answer."""

MEMBER_BYTES: Final = 1024
"""What a member takes beside what it chooses itself."""

PENDING_GROUP_MEMBERS_MAX: Final = 10_000
"""Members that were handed an id and have not come back with it yet, for one group."""

GROUPS_PER_TICK_MAX: Final = 100
"""Groups whose timers are looked at while all others wait: after a start all sessions end at one moment."""

GROUPS_PER_EXPIRY_MAX: Final = 100
"""Groups of which is looked for what has expired while all others wait."""

RECORDS_PER_OWN_BATCH_MAX: Final = 1_000
"""Records in a batch that a coordinator writes: one decision with very many must not make a batch that nobody can fetch."""

STOP_WAIT_MS: Final = 5_000
"""A node that stops answers what it has begun, but does not wait longer for a slow disk or a client that reads nothing."""
