"""The broker's bounds, each with its reason.

Here: bounds that keep one peer, topic or mistake from exhausting the node; not for operators to change.
Not here: settings (`config`), sizes of formats and decompressed batches (`busway_protocol.records.compression`), sizes
of single reads and writes.
"""

from typing import Final

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Default of socket.request.max.bytes, as Kafka's."""

CONNECTIONS_MAX: Final = 10_000
"""Default of max.connections. Kafka has none. A reconnect storm must not exhaust the file descriptors of a laptop."""

MEMBERS_PER_CONNECTION_MAX: Final = 64
"""Members of one connection that are fenced when it is closed; more keep their sessions, with a warning. Clients have
one connection per consumer."""

PARTITIONS_PER_TOPIC_MAX: Final = 10_000
"""One CreateTopics call may not fill the disk with directories."""

TOPICS_UNDER_WAY_MAX: Final = 1_000
"""Topics waiting to be created; further clients retry."""

SEGMENT_BYTES_MIN: Final = 1_048_576
"""Of a topic's segment.bytes, as in Kafka; not of offsets.topic.segment.bytes."""

ELECTIONS_AT_ONCE_MAX: Final = 1_000
"""Elections of one periodic decision of the controller, as in Kafka."""

PARTITIONS_CHANGED_AT_ONCE_MAX: Final = 1_000
"""Partitions that one decision of the controller changes when a broker comes or goes; those of a larger one follow."""

REGISTERED_AT_ONCE_MAX: Final = 500
"""Partitions whose new records a broker follows within one turn of the event loop: 15 ms."""

CREATED_PARTITIONS_MAX: Final = 10_000
"""Partitions of one command, as in Kafka: the batch must fit the metadata log."""

ASSIGNMENTS_AT_ONCE_MAX: Final = 2_250
"""Replicas in one AssignReplicasToDirs request of a broker, as in Kafka."""

COMMANDS_MAX: Final = 10_000
"""Commands waiting for the writer or to be followed. A connection has one at a time, but they outlive it."""

RECORDS_ENCODED_ON_LOOP_MAX: Final = 1_000
"""Records of a decision encoded on the event loop, not in a thread."""

CONFIG_VALUE_BYTES_MAX: Final = 2**15 - 1
"""Of one setting of a topic or a group, as in Kafka."""

TOPIC_NAME_CHARS_MAX: Final = 249
"""As in Kafka: a directory `topic-partition` with suffix must fit 255 bytes."""

RESPONSE_BYTES_MAX: Final = 96 * 1024 * 1024
"""Unsent responses of all connections. Fetched records stay in files until sent: only very many clients that do not
read reach this."""

ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
"""A response that describes many groups, transactions or producers: twice the largest group. The rest gets a retriable
error."""

LARGE_ANSWERS_AT_ONCE_MAX: Final = 2
"""Large responses built and encoded at a time: they share one core."""

METADATA_ANSWERS_BYTES_MAX: Final = 8 * 1024 * 1024
"""Cached Metadata responses for all topics: 0.4 MiB for 10,000 partitions, per version."""

WRITE_ROUND_BYTES_MAX: Final = 1024 * 1024
"""File bytes sent per poll of the event loop: 0.3 ms, so that many consumers do not delay producers."""

WRITE_SHARE_BYTES_MAX: Final = 256 * 1024
"""The same to one client: more than Linux' doubled default socket.send.buffer.bytes."""

SLICE_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a file in memory for a connection without `sendfile`."""

SLICE_BYTES_PRESSED_MAX: Final = 16 * 1024
"""The same while unread responses hold half of `RESPONSE_BYTES_MAX`."""

ACCEPT_RETRY_MS: Final = 1_000
"""Pause of accepting connections when no descriptor is free."""

COLD_READS_MAX: Final = 4
"""Slices of files read into memory at a time: a disk's usual parallelism."""

PARTIAL_REQUEST_TIMEOUT_MS: Final = 60_000
"""Time without new bytes of an incomplete request before its connection is closed."""

PARTIAL_REQUEST_CONTENDED_MS: Final = 2_000
"""The same while others wait for its memory."""

REQUEST_BYTES_PER_S_MIN: Final = 32 * 1024
"""Minimum rate of a request, after `PARTIAL_REQUEST_TIMEOUT_MS`. Slow lines pass, trickles do not."""

REQUEST_BYTES_MAX: Final = 96 * 1024 * 1024
"""Default of queued.max.request.bytes: waiting requests of all connections. With one always admitted request of
FRAME_BYTES_MAX, half of 512 MiB is left."""

REQUEST_BYTES_FREE: Final = 4 * 1024
"""Uncounted bytes of each connection: a heartbeat is always read."""

REQUEST_BYTES_LARGE: Final = 2 * 1024 * 1024
"""Size from which a request waits among large ones: twice message.max.bytes' default."""

REQUEST_BYTES_QUEUED_MAX: Final = 1024 * 1024
"""Bytes read ahead of a connection whose request is in progress."""

REQUEST_BYTES_WORKED_MAX: Final = 4 * 1024 * 1024
"""The same while batches are verified or inspected: almost five of producers' default requests, the number that Kafka's
have in flight."""

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
"""Logs synced concurrently: a disk takes about as long for one."""

SNAPSHOT_READS_AT_ONCE_MAX: Final = 4
"""Parts of metadata snapshots read for other controllers at once."""

SYNCS_NEXT_MAX: Final = SYNCS_AT_ONCE_MAX
"""Logs whose next sync is prepared. Further ones would miss what is appended until their turn."""

RECOVERY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Appended bytes between producer snapshots, read again after a kill in 0.1 s."""

RECOVERY_BYTES_SETTLED: Final = 256 * 1024
"""The same at each log.retention.check.interval.ms: idle logs are not reread."""

INFLATED_ON_LOOP_MAX: Final = 1024 * 1024
"""Decompressed bytes inspected on the loop: clients' default batches fit."""

SLICE_S: Final = 0.001
"""Slice of a thread's work: it holds the GIL meanwhile."""

INSPECTIONS_MAX: Final = 4
"""Batches decompressed off the loop at a time: ≤ 64 MB by default."""

FILES_MIN: Final = 64
"""Log files that may be open, however few descriptors the system allows."""

OTHER_DESCRIPTORS_MAX: Final = 64
"""Descriptors of neither logs nor connections: listeners, locks, directories, small files."""

DESCRIPTORS_SCANNED_MAX: Final = 64
"""Open files scanned when another is opened, maybe on the loop."""

FILE_NAME_BYTES_MAX: Final = 255

CUTS_MAX: Final = 4
"""Kept cuts of earlier starts. A crash loop must not fill the disk."""

CLEANED_KEYS_MAX: Final = 500_000
"""Keys of one round of cleaning: about 100 MB. More take several rounds, as in Kafka."""

CLEANER_PAUSE_S: Final = 0.003
"""Pause between two slices: cleaning takes at most a quarter of a core."""

POSITIONS_MAX: Final = 64
"""Cached positions in a segment, for flushes and readers each."""

FETCH_BYTES_MAX: Final = 55 * 1024 * 1024
"""Default of fetch.max.bytes: a fetch response never grows past it."""

FETCH_SESSION_PARTITIONS_MAX: Final = 200_000
"""Partitions in all fetch sessions, 1/3 KB each. A client beyond it gets no session (KIP-227)."""

BAD_PEER_LINES: Final = 5
"""Log lines about one peer's bad requests per `BAD_PEER_LOG_INTERVAL_MS`: scanners must not fill the disk."""

BAD_PEERS_LINES: Final = 20
"""The same for all peers: they may have many addresses."""

BAD_PEER_LOG_INTERVAL_MS: Final = 10_000

DISK_FAILURE_LOG_INTERVAL_MS: Final = 30_000
"""Interval of log lines about refused appends: clients retry often."""

GROUPS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Members of all groups. 10,000 consumers in groups of ten with the same 100 topics take half. Of this and similar
bounds a host gets at most as much as it leaves free (`fair_share`): alone half."""

GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
"""Members of one group: the leader gets all in one response."""

MEMBER_BYTES: Final = 1024
"""Without the data that it sends."""

NAME_BYTES: Final = 176
"""A topic's name without its letters: string, places in up to six sets, count."""

SUBSCRIBED_ELEMENTS_MAX: Final = 100_000
"""Topics and partitions in a classic group's different subscriptions, decoded at once per generation in 20 ms. Beyond
it the group counts as subscribed to any topic."""

PENDING_GROUP_MEMBERS_MAX: Final = 10_000
"""Handed-out unused member ids of one group."""

TRANSACTIONS_BYTES_MAX: Final = 64 * 1024 * 1024
"""All transactional ids of a node: 100,000, of one host 50,000 (`fair_share`). Kafka has no bound."""

TRANSACTION_BYTES: Final = 512
"""Without its name and partitions."""

TRANSACTION_PARTITION_BYTES: Final = 128
"""Of an open transaction."""

TRANSACTION_PARTITIONS_MAX: Final = 10_000
"""Partitions of one transaction: each of its records has all."""

TRANSACTIONS_PER_TICK_MAX: Final = 100
"""Transactions timed out or expired at once."""

VERIFICATION_ASKS_MAX: Final = 5
"""Verifications for one request whose producer's transactions end meanwhile; one more is usual from version 2."""

ENDING_AT_ONCE_MAX: Final = 100
"""Transactions whose markers are being written at a time."""

MARKER_RETRY_S: Final = (0.05, 1.0)
"""First and longest backoff of failed markers, in s."""

PATTERN_CHARS_MAX: Final = 1_000
"""Of a client's regular expression."""

PATTERN_MEMORY_BYTES_MAX: Final = 1024 * 1024
"""A regular expression with its matching cache, enforced by RE2."""

SILENT_WAIT_MS_MIN: Final = 1_000
"""Least wait for silent static members: they may ask for 0."""

STALE_DEADLINES_MIN: Final = 64
"""Stale entries of a list of deadlines before their removal, if they outnumber the valid ones."""

GROUPS_PER_TICK_MAX: Final = 100
"""Groups whose timers run at once: after a start all may expire together."""

MEMBERS_PER_TICK_MAX: Final = 20
"""Fenced members of a modern group at once: three records each."""

ASSIGNED_AT_ONCE_MAX: Final = 20_000
"""Topics of all members plus partitions balanced within a heartbeat: 10 ms. Larger groups are balanced in steps."""

ASSIGNED_PER_STEP_MAX: Final = 2_000
"""The same in one step: about 1 ms."""

TARGETS_WRITTEN_AT_ONCE_MAX: Final = 5_000
"""Members and partitions of a stepwise plan written at once."""

HASHED_SETS_MAX: Final = 2
"""Sets of very many topics whose hash is cached: each may be large."""

MIGRATED_MEMBERS_MAX: Final = 1_000
"""Members of a group that changes protocol, written at once."""

GROUP_PATTERNS_MAX: Final = 100
"""Different regular expressions of one group, each compared with all topics; matches are kept."""

GROUPS_RESOLVED_AT_ONCE_MAX: Final = 4
"""Groups whose regular expressions are resolved at a time: matches are in memory."""

GROUPS_PER_EXPIRY_MAX: Final = 100
"""Groups checked for expiry at once."""

OFFSETS_PER_EXPIRY_MAX: Final = 1_000
"""The same in offsets: each expired one is a record."""

OFFSETS_PER_COMMIT_MAX: Final = 1_000
"""Offsets of one commit written at once, 15 µs each."""

OFFSETS_BYTES_MAX: Final = 64 * 1024 * 1024
"""All groups without their members: 30,000 groups or 140,000 offsets. Kafka has no bound, and any client may commit for
new groups, kept for seven days by default. A replay may exceed it; an existing offset can always be updated."""

GROUP_BYTES: Final = 2048
"""Without members and offsets."""

OFFSET_BYTES: Final = 384
"""With short metadata."""

PENDING_OFFSETS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Offsets in open transactions; of one host half (`fair_share`): 50,000 partitions."""

PENDING_OFFSET_BYTES: Final = 512
"""Without its names."""

RECORDS_PER_OWN_BATCH_MAX: Final = 1_000
"""Records in a coordinator's batch: it must stay fetchable."""

STOP_WAIT_MS: Final = 5_000
"""Wait of a stopping node for pending responses."""

TYPED_SETTINGS_MAX: Final = 1_000
"""Cached typed settings of topics, 0.5 ms each to compute."""

PRODUCERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Producers of all partitions: 131,072, counted per partition. Kafka has no bound, and any client may write with
unassigned ids, kept for `producer.id.expiration.ms`, a day."""

IDLE_PRODUCERS_KEPT_MS: Final = 15 * 60_000
"""Retention of idle producers while half of that is used. Clients retry for two minutes by default."""

PRODUCER_BYTES: Final = 512
"""With its last five batches."""

VERIFICATION_BYTES: Final = 256
"""One of `VERIFICATIONS_MAX`."""

VERIFICATIONS_MAX: Final = 10_000
"""Producers of one partition with a pending or refused verification; beyond, the oldest is verified again."""

ABORTED_PER_FETCH_MAX: Final = 10_000
"""Aborted transactions in a fetch of one partition; beyond, less is returned."""

SHARE_SESSION_PARTITIONS_MAX: Final = 200_000
"""Partitions in all share sessions; a session beyond is refused."""

SHARE_PARTITIONS_MAX: Final = 20_000
"""Share partitions in memory, 2 KB each. Unused ones are evicted."""

SHARE_PARTITIONS_LOOKED_AT_MAX: Final = 64
"""Share partitions examined to find an unused one."""

SHARE_RECORDS_MAX: Final = 1_000_000
"""Offsets from first unfinished to last fetched, of all share partitions; 130 bytes each if acknowledged singly."""

SHARE_GROUP_RECORDS_MAX: Final = SHARE_RECORDS_MAX // 4
"""The same of one group."""

SHARE_RELEASES_AT_ONCE_MAX: Final = 1_000
"""Share partitions and acquired records released at once, after a member left or locks expired."""

SHARE_STATES_BYTES_MAX: Final = 64 * 1024 * 1024
"""All share states of a node's share coordinator; Kafka has no bound."""

SHARE_STATE_BYTES: Final = 1024
"""Without its group's name and batches."""

SHARE_STATE_BATCH_BYTES: Final = 160

SHARE_STATE_BATCHES_MAX: Final = 20_000
"""Batches of one share partition: twice its records in flight; a snapshot is one record."""

SHARE_SPAN_MAX: Final = SHARE_STATE_BATCHES_MAX // 2
"""Offsets from first unfinished to last fetched, with pending dead letters, which block no others until then."""

DEAD_LETTERS_AT_ONCE_MAX: Final = 8
"""Dead-letter batches built at a time: each may hold a decompressed batch."""

DEAD_LETTERS_PER_BATCH_MAX: Final = 500
"""Dead letters that one share partition writes at a time."""

DEAD_LETTER_WARNINGS_MAX: Final = 1_000
"""Groups whose failed dead letters were logged, once each."""

SHARE_STATES_PER_TICK_MAX: Final = 100
"""Share partitions whose snapshots are rewritten, or deleted, at once."""

SHARE_STATE_BATCHES_PER_TICK_MAX: Final = 2_000
"""Batches in one tick's snapshots, one batch of the log."""

SHARE_MEMBER_ID_CHARS_MAX: Final = 36
"""Of a share group's member id, as in Kafka: a client-made id's length."""

EXPLAINED_REBALANCES_MAX: Final = 50
"""Rebalances of a group kept for `busway groups explain`."""

EXPLAINED_GROUP_BYTES_MAX: Final = 256 * 1024
"""The kept rebalances of a group except the last, one string in a response."""

EXPLAINED_BYTES_MAX: Final = 8 * 1024 * 1024
"""The same of all groups; the longest quiet are evicted first."""

EXPLAINED_REASONS_MAX: Final = 100
"""Members whose events are kept in one rebalance; the others are counted."""

EXPLAINED_MOVES_MAX: Final = 200
"""Moved partitions kept of one rebalance."""

EXPLAINED_TEXT_MAX: Final = 200
"""Characters kept of clients' names and reasons."""

EXPLAINED_ASSIGNMENT_BYTES_MAX: Final = 64 * 1024
"""Assignments of a classic group decoded for the history: 10 ms."""

OBSERVERS_MAX: Final = 1_000
"""Observers counted by the metadata log's leader. Fetches of further ones do not wait."""

OBSERVER_SESSION_MS: Final = 300_000
"""Idle time before an observer is forgotten, as in Kafka."""

PROPOSALS_MAX: Final = 10_000
"""Batches of the metadata log without a majority yet. A leader that lost it accepts them until it notices."""

ENDING_ELSEWHERE_MAX: Final = 5_000
"""Transactions that may wait for other brokers, beside those that are being ended here."""

QUEUED_FOR_BROKER_MAX: Final = 10_000
"""A coordinator's items that wait for one other broker; more are refused, and their callers retry."""

METRICS_CONNECTIONS_MAX: Final = 20
"""Connections of the metrics listener; more close the one quiet for the longest. Each may hold a page of some MB."""
METRICS_PARTITIONS_MAX: Final = 10_000
"""Partitions with samples of their own in the metrics; with more there are none."""
METRICS_TOPICS_MAX: Final = 1_000
"""Topics with samples of their own in the metrics; with more there are only totals."""
