"""Every bound in the broker, in one place, each with its reason.

Here: numbers that keep one peer, topic or mistake from taking the whole node; no operator should need to touch them.
Not here: settings (`config`); what both ends of a connection agree on, such as sizes of formats and of decompressed
batches (`busway_protocol.records.compression`); the size of a single read or write, which bounds nothing.
"""

from typing import Final

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Default of socket.request.max.bytes, as Kafka's."""

CONNECTIONS_MAX: Final = 10_000
"""Default of max.connections. Kafka has none. A reconnect storm must not exhaust the file descriptors of a laptop."""

MEMBERS_PER_CONNECTION_MAX: Final = 64
"""Members of one connection that are fenced when it is closed. More keep their sessions, with a warning. Clients have a
connection for each consumer."""

PARTITIONS_PER_TOPIC_MAX: Final = 10_000
"""One CreateTopics call may not fill the disk with directories."""

TOPICS_UNDER_WAY_MAX: Final = 1_000
"""Topics waiting to be created; further clients retry."""

SEGMENT_BYTES_MIN: Final = 1_048_576
"""Of a topic's segment.bytes, as in Kafka; not of offsets.topic.segment.bytes."""

CREATED_PARTITIONS_MAX: Final = 10_000
"""Partitions of one command, as in Kafka: the batch must fit the metadata log."""

COMMANDS_MAX: Final = 10_000
"""Commands waiting for the writer or to be followed. A connection has one at a time, but they outlive it."""

RECORDS_ENCODED_ON_LOOP_MAX: Final = 1_000
"""Records of a decision encoded on the event loop, not in a thread."""

CONFIG_VALUE_BYTES_MAX: Final = 2**15 - 1
"""Of one setting of a topic or a group, as in Kafka."""

TOPIC_NAME_CHARS_MAX: Final = 249
"""Kafka's limit: a directory `topic-partition` with suffix must fit 255 bytes."""

RESPONSE_BYTES_MAX: Final = 96 * 1024 * 1024
"""Untaken responses of all connections. Fetched records stay in the files until there is room: only very many clients
that do not read reach this."""

ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
"""A response that describes many groups, transactions or producers. Twice the largest group. The rest gets a retriable
error."""

LARGE_ANSWERS_AT_ONCE_MAX: Final = 2
"""Large responses built and encoded at a time: they share one core."""

METADATA_ANSWERS_BYTES_MAX: Final = 8 * 1024 * 1024
"""Cached Metadata responses for all topics: 0.4 MiB for 10,000 partitions, per version."""

WRITE_ROUND_BYTES_MAX: Final = 1024 * 1024
"""Bytes of files sent between two polls of the event loop: 0.3 ms. Producers get their turn beside many consumers."""

WRITE_SHARE_BYTES_MAX: Final = 256 * 1024
"""Of them to one client: more than Linux' doubled default socket.send.buffer.bytes."""

SLICE_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a file in memory for a connection without `sendfile`."""

SLICE_BYTES_PRESSED_MAX: Final = 16 * 1024
"""The same while unread responses hold half of `RESPONSE_BYTES_MAX`."""

ACCEPT_RETRY_MS: Final = 1_000
"""Pause of accepting connections without free descriptors."""

COLD_READS_MAX: Final = 4
"""Slices of files read into memory at a time: a disk's usual parallelism."""

PARTIAL_REQUEST_TIMEOUT_MS: Final = 60_000
"""An incomplete request without new bytes for so long ends its connection."""

PARTIAL_REQUEST_CONTENDED_MS: Final = 2_000
"""The same while other connections wait for its memory."""

REQUEST_BYTES_PER_S_MIN: Final = 32 * 1024
"""Minimum rate of a request, after `PARTIAL_REQUEST_TIMEOUT_MS`. A slow line is served, a trickle not for ever."""

REQUEST_BYTES_MAX: Final = 96 * 1024 * 1024
"""Default of queued.max.request.bytes: waiting requests of all connections. With one request of FRAME_BYTES_MAX on top,
which is always admitted, half of 512 MiB is left."""

REQUEST_BYTES_FREE: Final = 4 * 1024
"""Uncounted bytes of each connection: a heartbeat is always read."""

REQUEST_BYTES_LARGE: Final = 2 * 1024 * 1024
"""Size from which a request waits among large ones: twice message.max.bytes' default."""

REQUEST_BYTES_QUEUED_MAX: Final = 1024 * 1024
"""Bytes read ahead of a connection whose request is in progress."""

REQUEST_BYTES_WORKED_MAX: Final = 4 * 1024 * 1024
"""The same of concurrent requests, while batches are verified or inspected. Five requests of the producers' default
size, as Kafka's have in flight, fit almost at once."""

FRAME_GROWTH_BYTES_MIN: Final = 4 * 1024
"""Growth of a frame's buffer, up to `FRAME_GROWTH_BYTES_MAX`, whatever its stated size."""

FRAME_GROWTH_BYTES_MAX: Final = 1024 * 1024

REQUESTS_PIPELINED_MAX: Final = 64
"""Requests of one connection read before the first is answered."""

GATHERED_BYTES_MAX: Final = 16 * 1024
"""Responses written together; larger ones at once, for back-pressure."""

SENDFILE_BYTES_MIN: Final = 16 * 1024
"""Size from which a file is sent by `sendfile`: less is cheaper to copy."""

SYNCS_AT_ONCE_MAX: Final = 8
"""Logs synced concurrently: a disk takes so many at almost the price of one."""

SNAPSHOT_READS_AT_ONCE_MAX: Final = 4
"""Parts of metadata snapshots read for other controllers at once; others wait."""

SYNCS_NEXT_MAX: Final = SYNCS_AT_ONCE_MAX
"""Logs whose next sync is prepared. More would be synced without what is appended until their turn."""

RECOVERY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Appended bytes between two producer snapshots: read again after a kill, 0.1 s."""

RECOVERY_BYTES_SETTLED: Final = 256 * 1024
"""The same at each log.retention.check.interval.ms: idle logs are not read again."""

INFLATED_ON_LOOP_MAX: Final = 1024 * 1024
"""Decompressed bytes inspected on the loop: no client's default batch is larger."""

SLICE_S: Final = 0.001
"""Work of a thread at a stretch: it holds the interpreter, responses wait."""

INSPECTIONS_MAX: Final = 4
"""Batches decompressed off the loop at a time: ≤ 64 MB by default."""

FILES_MIN: Final = 64
"""Log files that may be open, however few descriptors the system allows."""

OTHER_DESCRIPTORS_MAX: Final = 64
"""Descriptors of neither logs nor connections: listeners, locks, directories, small files."""

DESCRIPTORS_SCANNED_MAX: Final = 64
"""Open files scanned when another is opened: the loop may be waiting."""

FILE_NAME_BYTES_MAX: Final = 255

CUTS_MAX: Final = 4
"""Cuts of earlier starts that are kept. A broker that dies again and again must not fill the disk."""

CLEANED_KEYS_MAX: Final = 500_000
"""Keys of one round of cleaning: about 100 MB. More take several rounds, as in Kafka."""

CLEANER_PAUSE_S: Final = 0.003
"""Pause between two slices: cleaning takes at most a quarter of a core."""

POSITIONS_MAX: Final = 64
"""Cached positions in a segment, of flushes and of readers each."""

FETCH_BYTES_MAX: Final = 55 * 1024 * 1024
"""Default of fetch.max.bytes: a fetch response never grows past it."""

FETCH_SESSION_PARTITIONS_MAX: Final = 200_000
"""Partitions in all fetch sessions together, 1/3 KB each. A client above it names its partitions in every request, as
before KIP-227."""

BAD_PEER_LINES: Final = 5
"""Log lines about one peer's bad requests in `BAD_PEER_LOG_INTERVAL_MS`. A scanner must not fill the disk."""

BAD_PEERS_LINES: Final = 20
"""The same for all peers: they may have many addresses."""

BAD_PEER_LOG_INTERVAL_MS: Final = 10_000

DISK_FAILURE_LOG_INTERVAL_MS: Final = 30_000
"""Interval of log lines about refused appends: clients retry ten times a second."""

GROUPS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Members of all groups. Ten thousand consumers in groups of ten that read the same hundred topics take half of it. Of
this and similar bounds a host gets at most as much as it leaves free (`fair_share`): alone half."""

GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
"""Members of one group: their leader gets all of it in one response."""

MEMBER_BYTES: Final = 1024
"""A member without what it chooses itself."""

NAME_BYTES: Final = 176
"""A topic's name without its letters: string, place in a set (up to six), and count."""

SUBSCRIBED_ELEMENTS_MAX: Final = 100_000
"""Topics and partitions in a classic group's different subscriptions. Decoded at once for each generation, in 20 ms;
beyond that, the group may read any topic."""

PENDING_GROUP_MEMBERS_MAX: Final = 10_000
"""Handed-out unused member ids of one group."""

TRANSACTIONS_BYTES_MAX: Final = 64 * 1024 * 1024
"""All transactional ids of a node: 100,000, of one host 50,000 (`fair_share`). Kafka has no bound, and any client may
make ids."""

TRANSACTION_BYTES: Final = 512
"""A transactional id without its name and partitions."""

TRANSACTION_PARTITION_BYTES: Final = 128
"""A partition of an open transaction."""

TRANSACTION_PARTITIONS_MAX: Final = 10_000
"""Partitions of one transaction: each of its records names all."""

TRANSACTIONS_PER_TICK_MAX: Final = 100
"""Transactions aborted for their age or forgotten at once."""

VERIFICATION_ASKS_MAX: Final = 5
"""Verifications for one request whose producer's transactions end meanwhile. From version 2 on one more is the rule."""

ENDING_AT_ONCE_MAX: Final = 100
"""Transactions whose markers are being written at a time."""

MARKER_RETRY_S: Final = (0.05, 1.0)
"""First and longest wait before failed markers are retried."""

PATTERN_CHARS_MAX: Final = 1_000
"""Of a client's regular expression."""

PATTERN_MEMORY_BYTES_MAX: Final = 1024 * 1024
"""A regular expression with its matching cache; RE2 refuses more."""

SILENT_WAIT_MS_MIN: Final = 1_000
"""Least wait for silent static members: they may ask for 0."""

STALE_DEADLINES_MIN: Final = 64
"""Stale entries of a list of deadlines before they are removed. They must also outnumber the valid ones."""

GROUPS_PER_TICK_MAX: Final = 100
"""Groups whose timers run at once: after a start all sessions end together."""

MEMBERS_PER_TICK_MAX: Final = 20
"""Fenced members of a modern group at once: three records each."""

ASSIGNED_AT_ONCE_MAX: Final = 20_000
"""Topics of all members, and partitions, balanced within a heartbeat: 10 ms. A larger group is balanced in steps;
members keep their partitions until then."""

ASSIGNED_PER_STEP_MAX: Final = 2_000
"""The same in one step: about 1 ms."""

TARGETS_WRITTEN_AT_ONCE_MAX: Final = 5_000
"""Target members and partitions of a stepwise plan written at once."""

HASHED_SETS_MAX: Final = 2
"""Sets of very many topics whose hash is cached: each may be large."""

MIGRATED_MEMBERS_MAX: Final = 1_000
"""Members of a group that changes protocol: all is written at once."""

GROUP_PATTERNS_MAX: Final = 100
"""Different regular expressions of one group. Each is compared with all topics, and keeps the matches."""

GROUPS_RESOLVED_AT_ONCE_MAX: Final = 4
"""Groups whose regular expressions are resolved at a time: matches are in memory."""

GROUPS_PER_EXPIRY_MAX: Final = 100
"""Groups checked for expiry at once."""

OFFSETS_PER_EXPIRY_MAX: Final = 1_000
"""The same in offsets: each expired one is a record."""

OFFSETS_PER_COMMIT_MAX: Final = 1_000
"""Offsets of one commit written at once, 15 µs each."""

OFFSETS_BYTES_MAX: Final = 64 * 1024 * 1024
"""All groups of a node without members: 30,000 groups, or 140,000 offsets. Kafka has no bound, and any client may
commit for new groups, kept for `offsets.retention.minutes`, seven days. A replay may exceed it; an existing offset can
always be moved."""

GROUP_BYTES: Final = 2048
"""A group without members and offsets."""

OFFSET_BYTES: Final = 384
"""A committed offset, with short metadata."""

PENDING_OFFSETS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Offsets in open transactions; of one host half (`fair_share`): 50,000 partitions."""

PENDING_OFFSET_BYTES: Final = 512
"""A pending offset without its names."""

RECORDS_PER_OWN_BATCH_MAX: Final = 1_000
"""Records in a coordinator's batch: it must stay fetchable."""

STOP_WAIT_MS: Final = 5_000
"""Time that a stopping node waits for pending responses."""

TYPED_SETTINGS_MAX: Final = 1_000
"""Typed settings of topics that are cached: each takes 0.5 ms to make."""

PRODUCERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Producers of all partitions of a node: 131,072, counted per partition. Kafka has no bound, and any client may write
with ids that no broker assigned, kept for `producer.id.expiration.ms`, a day."""

IDLE_PRODUCERS_KEPT_MS: Final = 15 * 60_000
"""Retention of idle producers while half of that is used. Clients give a batch up after two minutes by default."""

PRODUCER_BYTES: Final = 512
"""A producer with its last five batches."""

VERIFICATION_BYTES: Final = 256
"""One of `VERIFICATIONS_MAX`."""

VERIFICATIONS_MAX: Final = 10_000
"""Producers of one partition with a pending or refused verification. Beyond it the oldest is verified again."""

ABORTED_PER_FETCH_MAX: Final = 10_000
"""Aborted transactions in a fetch of one partition; beyond, less is read."""

SHARE_SESSION_PARTITIONS_MAX: Final = 200_000
"""Partitions in all share sessions; a session beyond is refused."""

SHARE_PARTITIONS_MAX: Final = 20_000
"""Share partitions in memory, 2 KB each. Unused ones are evicted."""

SHARE_PARTITIONS_LOOKED_AT_MAX: Final = 64
"""Share partitions examined to find an unused one."""

SHARE_RECORDS_MAX: Final = 1_000_000
"""Offsets between first unfinished and last fetched, of all share partitions. Members may report each by itself, which
takes 130 bytes."""

SHARE_GROUP_RECORDS_MAX: Final = SHARE_RECORDS_MAX // 4
"""The same of one group, to leave room for others."""

SHARE_RELEASES_AT_ONCE_MAX: Final = 1_000
"""Share partitions, and their acquired records, released at once. For a member that is gone, or for timed-out locks."""

SHARE_STATES_BYTES_MAX: Final = 64 * 1024 * 1024
"""All share states of a node's share coordinator; Kafka has no bound."""

SHARE_STATE_BYTES: Final = 1024
"""A share partition without its group's name and batches."""

SHARE_STATE_BATCH_BYTES: Final = 160

SHARE_STATE_BATCHES_MAX: Final = 20_000
"""Batches of one share partition: twice its records in flight; a snapshot is one record."""

SHARE_SPAN_MAX: Final = SHARE_STATE_BATCHES_MAX // 2
"""Offsets from first unfinished to last fetched, with pending dead letters. Until then those that wait do not hold up
others."""

DEAD_LETTERS_AT_ONCE_MAX: Final = 8
"""Dead-letter batches built at a time: each may hold a decompressed batch."""

DEAD_LETTERS_PER_BATCH_MAX: Final = 500
"""Dead letters that one share partition writes at a time."""

DEAD_LETTER_WARNINGS_MAX: Final = 1_000
"""Groups whose dead letters cannot be written that are remembered, so that each is logged once."""

SHARE_STATES_PER_TICK_MAX: Final = 100
"""Share partitions whose snapshots are renewed, or that are forgotten, at once."""

SHARE_STATE_BATCHES_PER_TICK_MAX: Final = 2_000
"""Batches in one turn's snapshots, in one batch of the log. A share partition's are one record."""

SHARE_MEMBER_ID_CHARS_MAX: Final = 36
"""Of a share group's member id: a client-made id's length, as in Kafka."""

EXPLAINED_REBALANCES_MAX: Final = 50
"""Rebalances of a group kept for `busway groups explain`."""

EXPLAINED_GROUP_BYTES_MAX: Final = 256 * 1024
"""The kept rebalances of a group, without the last: one string in a response."""

EXPLAINED_BYTES_MAX: Final = 8 * 1024 * 1024
"""The kept rebalances of all groups; those quiet for longest go first."""

EXPLAINED_REASONS_MAX: Final = 100
"""Members whose events are kept in one rebalance; the others are counted."""

EXPLAINED_MOVES_MAX: Final = 200
"""Moved partitions kept of one rebalance."""

EXPLAINED_TEXT_MAX: Final = 200
"""Characters kept of names and reasons chosen by clients."""

EXPLAINED_ASSIGNMENT_BYTES_MAX: Final = 64 * 1024
"""Assignments of a classic group decoded for the history: about 10 ms."""

OBSERVERS_MAX: Final = 1_000
"""Observers counted by the metadata log's leader. More are served, but their fetches do not wait."""

OBSERVER_SESSION_MS: Final = 300_000
"""An observer without a fetch is forgotten then, as in Kafka."""

PROPOSALS_MAX: Final = 10_000
"""Batches of the metadata log that wait for a majority. A leader without one accepts them until it notices."""
METRICS_CONNECTIONS_MAX: Final = 20
"""Connections of the metrics listener; more close the one quiet for the longest. Each may hold a page of some MB."""
METRICS_PARTITIONS_MAX: Final = 10_000
"""Partitions with samples of their own in the metrics; with more there are none."""
METRICS_TOPICS_MAX: Final = 1_000
"""Topics with samples of their own in the metrics; with more there are only totals."""
