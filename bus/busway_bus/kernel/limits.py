"""Every bound in the broker, in one place, each with its reason.

What lives here: numbers that keep one peer, one topic or one mistake from taking the whole node. What does not:
settings that an operator tunes (those are in `config`, under Kafka's names); a bound here is one that nobody should
need to touch. Nor what both ends of a connection have to agree on: sizes of the formats, and what a batch may become out of its codec
(`busway_protocol.records.compression`). Nor the size of a single read or write, which bounds nothing.
"""

from typing import Final

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Default of socket.request.max.bytes: Kafka's own cap, so that no client which works there is refused here."""

CONNECTIONS_MAX: Final = 10_000
"""Default of max.connections. Kafka has none; a reconnect storm must not exhaust the file descriptors of a laptop."""

PARTITIONS_PER_TOPIC_MAX: Final = 10_000
"""One CreateTopics call may not fill the disk with directories; above this, add topics."""

TOPICS_UNDER_WAY_MAX: Final = 1_000
"""Topics that wait to be made at one time; who asks for more is told the same and comes again."""

SEGMENT_BYTES_MIN: Final = 1_048_576
"""Of segment.bytes of a topic, in Kafka; offsets.topic.segment.bytes knows no such bound."""

CREATED_PARTITIONS_MAX: Final = 10_000
"""Partitions of one command, as in Kafka: more would make one batch of the metadata log too large."""

COMMANDS_MAX: Final = 10_000
"""Commands that wait for the writer or to be followed. Each connection has one at a time, but they outlive connections that come and go."""

RECORDS_ENCODED_ON_LOOP_MAX: Final = 1_000
"""Records of a decision that are encoded between two others' requests; more of them, in another thread."""

TOPIC_NAME_CHARS_MAX: Final = 249
"""Kafka's limit: the directory name `topic-partition` plus `.delete` suffix must fit a file name of 255 bytes."""

RESPONSE_BYTES_MAX: Final = 96 * 1024 * 1024
"""What all connections together hold of answers that were not taken. What a fetch answers with stays in the files until there is
room for it, so this is met only where very many clients do not read, or ask for much else and do not."""

WRITE_ROUND_BYTES_MAX: Final = 1024 * 1024
"""Bytes of files that go to all clients together before the event loop looks for requests again: a third of a millisecond's work, so
that who writes gets its turn beside many who read."""

WRITE_SHARE_BYTES_MAX: Final = 256 * 1024
"""Of them to one client: more than fits into the default of socket.send.buffer.bytes, as Linux doubles it."""

SLICE_BYTES_MAX: Final = 1024 * 1024
"""How much of a file is in memory for a connection whose socket cannot take it from the file itself."""

SLICE_BYTES_PRESSED_MAX: Final = 16 * 1024
"""The same while answers that nobody takes hold half of `RESPONSE_BYTES_MAX`."""

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

FRAME_GROWTH_BYTES_MIN: Final = 4 * 1024
"""A frame's buffer grows by so many bytes at least, and at most by `FRAME_GROWTH_BYTES_MAX`, however large the frame says it is."""

FRAME_GROWTH_BYTES_MAX: Final = 1024 * 1024

REQUESTS_PIPELINED_MAX: Final = 64
"""Requests of one connection that are taken in before the first of them is answered."""

GATHERED_BYTES_MAX: Final = 16 * 1024
"""Answers up to so many bytes are written together; a larger one goes out at once, so that back-pressure is felt."""

SENDFILE_BYTES_MIN: Final = 16 * 1024
"""Sent by `sendfile`; less of a file goes through memory together with what stands around it: one system call in place of three costs less than copying."""

SYNCS_AT_ONCE_MAX: Final = 8
"""Logs that are synced beside each other: a disk takes so many at little more than the price of one, and a slow one stops no other."""

SYNCS_NEXT_MAX: Final = SYNCS_AT_ONCE_MAX
"""Logs whose next sync is prepared, for a thread that is done with one to go on with: more of them would be synced without what is
appended until their turn comes."""

RECOVERY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Appended to one log between two producers' snapshots: what a start after a kill reads again of it at most, a tenth of a second."""

RECOVERY_BYTES_SETTLED: Final = 256 * 1024
"""The same where a log is looked at now and then (`log.retention.check.interval.ms`): ten thousand that rest are not read again."""

INFLATED_ON_LOOP_MAX: Final = 1024 * 1024
"""Bytes of records that are taken out of their codec and looked through at once: a batch that no client's default exceeds."""

SLICE_S: Final = 0.001
"""Work at a stretch beside the event loop: as it holds the interpreter, an answer may have to wait as long."""

INSPECTIONS_MAX: Final = 4
"""Batches that are out of their codec beside the event loop at a time: with `inflated_max` of the records, at most 64 MB by default."""

FILES_MIN: Final = 64
"""Files of logs that may be open at least, however few descriptors the system allows."""

OTHER_DESCRIPTORS_MAX: Final = 64
"""Descriptors that are neither files of logs nor connections: listeners, locks, directories and small files for a moment."""

DESCRIPTORS_SCANNED_MAX: Final = 64
"""Open files looked at when one more is opened: most are not in use, and the loop may be waiting."""

FILE_NAME_BYTES_MAX: Final = 255
"""What file systems take for one name."""

CUTS_MAX: Final = 4
"""Cuts of earlier starts that are kept beside those of the newest one: a broker that dies again and again must not fill the disk."""

CLEANED_KEYS_MAX: Final = 500_000
"""Keys of one round of cleaning: about 100 MB. A log with more is cleaned in several rounds, as Kafka does when its buffer is full."""

CLEANER_PAUSE_S: Final = 0.003
"""Rest between two slices, so that cleaning takes at most a quarter of a core."""

POSITIONS_MAX: Final = 64
"""Places in a segment that are remembered: of so many flushes, and of so many readers."""

FETCH_BYTES_MAX: Final = 55 * 1024 * 1024
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

TRANSACTIONS_BYTES_MAX: Final = 64 * 1024 * 1024
"""What all transactional ids of a node may take: a hundred thousand of them. Kafka has no such bound, and anybody may make ids."""

TRANSACTION_BYTES: Final = 512
"""What a transactional id takes beside its name and its partitions."""

TRANSACTION_PARTITION_BYTES: Final = 128
"""What each partition of an open transaction takes."""

TRANSACTION_PARTITIONS_MAX: Final = 10_000
"""Partitions that one transaction writes to: each of its records names all of them."""

TRANSACTIONS_PER_TICK_MAX: Final = 100
"""Transactions that are aborted for their age, or forgotten, while all others wait."""

ENDING_AT_ONCE_MAX: Final = 100
"""Transactions whose markers are being written at a time: after a start there may be very many."""

MARKER_RETRY_S: Final = (0.05, 1.0)
"""First and longest wait before markers that could not be written are tried again."""

PATTERN_CHARS_MAX: Final = 1_000
"""Of a regular expression of a client."""

PATTERN_MEMORY_BYTES_MAX: Final = 1024 * 1024
"""For a regular expression and what its matching keeps; RE2 refuses one that comes to more, and forgets what it keeps when that is full."""

SILENT_WAIT_MS_MIN: Final = 1_000
"""How long silent static members are waited for at least; a member may ask for 0, and the timer must not spin."""

STALE_DEADLINES_MIN: Final = 64
"""Entries of a list of deadlines that count no more are swept out when there are so many of them, and more than of those that do."""

GROUPS_PER_TICK_MAX: Final = 100
"""Groups whose timers are looked at while all others wait: after a start all sessions end at one moment."""

GROUPS_PER_EXPIRY_MAX: Final = 100
"""Groups of which is looked for what has expired while all others wait."""

OFFSETS_PER_EXPIRY_MAX: Final = 1_000
"""The same in offsets: one group may have as many as there are partitions, and each that has expired is a record to write."""

OFFSETS_PER_COMMIT_MAX: Final = 1_000
"""Offsets of one commit that are written before others are served: each takes some 15 microseconds."""

PENDING_OFFSETS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Offsets of all groups that were committed within transactions that are open: they may be as many as producers like."""

PENDING_OFFSET_BYTES: Final = 512
"""What one of them takes beside the names that it brings."""

RECORDS_PER_OWN_BATCH_MAX: Final = 1_000
"""Records in a batch that a coordinator writes: one decision with very many must not make a batch that nobody can fetch."""

STOP_WAIT_MS: Final = 5_000
"""A node that stops answers what it has begun, but does not wait longer for a slow disk or a client that reads nothing."""

TYPED_SETTINGS_MAX: Final = 1_000
"""Different settings of topics that are remembered in their typed form, which takes half a millisecond to make."""

VERIFICATIONS_MAX: Final = 10_000
"""Producers of one partition whose coordinator is being asked whether their transaction is ongoing, or has said no; of more, the oldest
has to ask again."""

ABORTED_PER_FETCH_MAX: Final = 10_000
"""Aborted transactions that a fetch names for one partition; where there are more in what would be read, less is read."""
