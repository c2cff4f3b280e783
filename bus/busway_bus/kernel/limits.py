"""Every bound in the broker, in one place, each with its reason.

What lives here: numbers that keep one peer, one topic or one mistake from taking the whole node; no operator should
need to touch them. What does not: settings that an operator tunes (`config`); what both ends of a connection agree on,
such as sizes of formats and of decompressed batches (`busway_protocol.records.compression`); the size of a single read
or write, which bounds nothing.
"""

from typing import Final

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Default of socket.request.max.bytes, Kafka's: a client that works there is not refused here."""

CONNECTIONS_MAX: Final = 10_000
"""Default of max.connections. Kafka has none; a reconnect storm must not exhaust the file descriptors of a laptop."""

MEMBERS_PER_CONNECTION_MAX: Final = 64
"""Members whose requests one connection carries, that are fenced when it is closed; more keep their sessions, and a warning says so. Clients
have a connection for each consumer."""

PARTITIONS_PER_TOPIC_MAX: Final = 10_000
"""One CreateTopics call may not fill the disk with directories; above this, add topics."""

TOPICS_UNDER_WAY_MAX: Final = 1_000
"""Topics that wait to be created at one time; further clients retry."""

SEGMENT_BYTES_MIN: Final = 1_048_576
"""Of segment.bytes of a topic, in Kafka; offsets.topic.segment.bytes knows no such bound."""

CREATED_PARTITIONS_MAX: Final = 10_000
"""Partitions of one command, as in Kafka: more would make one batch of the metadata log too large."""

COMMANDS_MAX: Final = 10_000
"""Commands that wait for the writer or to be followed. Each connection has one at a time, but they outlive connections that come and go."""

RECORDS_ENCODED_ON_LOOP_MAX: Final = 1_000
"""Records of a decision that are encoded between two others' requests; more of them, in another thread."""

CONFIG_VALUE_BYTES_MAX: Final = 2**15 - 1
"""Of one setting of a topic or a group, as in Kafka."""

TOPIC_NAME_CHARS_MAX: Final = 249
"""Kafka's limit: the directory name `topic-partition` plus `.delete` suffix must fit a file name of 255 bytes."""

RESPONSE_BYTES_MAX: Final = 96 * 1024 * 1024
"""What all connections together hold of answers that were not taken. What a fetch answers with stays in the files until there is
room for it, so this is met only where very many clients do not read, or ask for much else and do not."""

ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
"""What one answer that describes many groups, transactions or producers takes: twice the largest group. What is behind that is answered with
an error with which clients ask again, and for that alone."""

LARGE_ANSWERS_AT_ONCE_MAX: Final = 2
"""Answers that take turns to be made and are put into bytes beside the event loop, at one time, with all that they are made of: they share one
core, so that more of them would be no faster."""

METADATA_ANSWERS_BYTES_MAX: Final = 8 * 1024 * 1024
"""Answers that tell of all topics and are kept: one of 10,000 partitions takes 0.4 MiB, once for each version that is asked in."""

WRITE_ROUND_BYTES_MAX: Final = 1024 * 1024
"""Bytes of files that go to all clients together before the event loop looks for requests again: a third of a millisecond's work, so
that who writes gets its turn beside many who read."""

WRITE_SHARE_BYTES_MAX: Final = 256 * 1024
"""Of them to one client: more than fits into the default of socket.send.buffer.bytes, as Linux doubles it."""

SLICE_BYTES_MAX: Final = 1024 * 1024
"""How much of a file is in memory for a connection whose socket cannot take it from the file itself."""

SLICE_BYTES_PRESSED_MAX: Final = 16 * 1024
"""The same while responses that no client reads hold half of `RESPONSE_BYTES_MAX`."""

ACCEPT_RETRY_MS: Final = 1_000
"""How long no connection is accepted where the system has no descriptors left: connections end in that time, and asking again costs the
loop."""

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

REQUEST_BYTES_WORKED_MAX: Final = 4 * 1024 * 1024
"""The same of requests that are worked on beside each other, while batches wait for the coordinator of their transaction or are looked
through: five of the size that producers make at most, as many as Kafka's have on their way, are let in nearly at once."""

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
"""Descriptors of neither logs nor connections: listeners, locks, directories and small files for a moment."""

DESCRIPTORS_SCANNED_MAX: Final = 64
"""Open files scanned when one more is opened: most are unused, and the loop may be waiting."""

FILE_NAME_BYTES_MAX: Final = 255
"""What file systems take for one name."""

CUTS_MAX: Final = 4
"""Cuts of earlier starts that are kept beside those of the newest one: a broker that dies again and again must not fill the disk."""

CLEANED_KEYS_MAX: Final = 500_000
"""Keys of one round of cleaning: about 100 MB. A log with more is cleaned in several rounds, as in Kafka."""

CLEANER_PAUSE_S: Final = 0.003
"""Rest between two slices, so that cleaning takes at most a quarter of a core."""

POSITIONS_MAX: Final = 64
"""Places in a segment that are remembered: of so many flushes, and of so many readers."""

FETCH_BYTES_MAX: Final = 55 * 1024 * 1024
"""Default of fetch.max.bytes: a fetch response never grows past it, whatever the client asks for."""

FETCH_SESSION_PARTITIONS_MAX: Final = 200_000
"""Partitions in all fetch sessions together, each of which takes a third of a kilobyte; a client above it names its
partitions in every request, as clients did before there were sessions."""

BAD_PEER_LINES: Final = 5
"""Log lines about one peer's bad requests in `BAD_PEER_LOG_INTERVAL_MS`, whatever the reasons: a scanner must not fill
the disk.
"""

BAD_PEERS_LINES: Final = 20
"""The same for all peers: they may have as many addresses as they like."""

BAD_PEER_LOG_INTERVAL_MS: Final = 10_000

DISK_FAILURE_LOG_INTERVAL_MS: Final = 30_000
"""Appends that the disk refuses get one log line in this time, with how many there were: clients send again ten times a second."""

GROUPS_BYTES_MAX: Final = 64 * 1024 * 1024
"""What the members of all groups hold together: ten thousand consumers in groups of ten that read the same hundred
topics take half of it. Of this and similar bounds a host gets at most as much as it leaves free (`fair_share`): one
alone gets half.
"""

GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
"""What the members of one group hold: their leader gets all of it in one answer."""

MEMBER_BYTES: Final = 1024
"""What a member takes beside what it chooses itself."""

NAME_BYTES: Final = 176
"""What a topic's name takes beside its letters in what a group reads: the string, its place in a set, which may be six places large, and
in the count of who reads it."""

SUBSCRIBED_ELEMENTS_MAX: Final = 100_000
"""Topics and partitions in the different subscriptions of a classic group, which are read in one piece for each generation, in 20
milliseconds: of one with more it is not known what it reads, and so it may be anything."""

PENDING_GROUP_MEMBERS_MAX: Final = 10_000
"""Members that were handed an id and have not come back with it yet, for one group."""

TRANSACTIONS_BYTES_MAX: Final = 64 * 1024 * 1024
"""What all transactional ids of a node may take: a hundred thousand of them, of one host fifty thousand (`fair_share`). Kafka has no such
bound, and anybody may make ids."""

TRANSACTION_BYTES: Final = 512
"""What a transactional id takes beside its name and its partitions."""

TRANSACTION_PARTITION_BYTES: Final = 128
"""What each partition of an open transaction takes."""

TRANSACTION_PARTITIONS_MAX: Final = 10_000
"""Partitions that one transaction writes to: each of its records names all of them."""

TRANSACTIONS_PER_TICK_MAX: Final = 100
"""Transactions that are aborted for their age, or forgotten, while all others wait."""

VERIFICATION_ASKS_MAX: Final = 5
"""How often a coordinator is asked for one request whose producer's transactions end meanwhile: of version 2 on, one more ask is the rule."""

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

MEMBERS_PER_TICK_MAX: Final = 20
"""Members of a group that the coordinator balances which are put out while all others wait: each takes three records along."""

ASSIGNED_AT_ONCE_MAX: Final = 20_000
"""Topics of all members, and partitions, of a group that is balanced within the heartbeat that asks for it, in 10 milliseconds; a larger one
is balanced a step at a time, and its members get what they had until that is done."""

ASSIGNED_PER_STEP_MAX: Final = 2_000
"""The same in one step: about a millisecond."""

TARGETS_WRITTEN_AT_ONCE_MAX: Final = 5_000
"""Target members and partitions, of a group that is balanced in steps, that are written while all others wait."""

HASHED_SETS_MAX: Final = 2
"""Sets of very many topics whose hash is kept, as groups ask for it at every join: each may be as large as what a group holds."""

MIGRATED_MEMBERS_MAX: Final = 1_000
"""Members that a group may have which changes between the classic and the consumer protocol: all of it is written while all others wait."""

GROUP_PATTERNS_MAX: Final = 100
"""Different regular expressions that the members of one group may have: each is compared with all topics, and
keeps the names of those that it matches."""

GROUPS_RESOLVED_AT_ONCE_MAX: Final = 4
"""Groups whose regular expressions are compared with all topics at a time: what one matches is in memory until it is written."""

GROUPS_PER_EXPIRY_MAX: Final = 100
"""Groups of which is looked for what has expired while all others wait."""

OFFSETS_PER_EXPIRY_MAX: Final = 1_000
"""The same in offsets: one group may have as many as there are partitions, and each that has expired is a record to write."""

OFFSETS_PER_COMMIT_MAX: Final = 1_000
"""Offsets of one commit that are written before others are served: each takes some 15 microseconds."""

OFFSETS_BYTES_MAX: Final = 64 * 1024 * 1024
"""What all groups of a node take beside their members, with the offsets that they have committed: 30,000 groups, or 140,000 offsets. Kafka has
no such bound, and anybody may commit for groups that are not there, which are kept for `offsets.retention.minutes`, seven days. A log that is
read may bring more; an offset that is there is moved on however much there is."""

GROUP_BYTES: Final = 2048
"""What a group takes beside its members and offsets."""

OFFSET_BYTES: Final = 384
"""What a committed offset takes, with metadata of some words."""

PENDING_OFFSETS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Offsets of all groups that were committed within transactions that are open: they may be as many as producers like. Of one host half
(`fair_share`): fifty thousand partitions."""

PENDING_OFFSET_BYTES: Final = 512
"""What one of them takes beside the names that it brings."""

RECORDS_PER_OWN_BATCH_MAX: Final = 1_000
"""Records in a batch that a coordinator writes: one decision with very many must not make a batch that no consumer can fetch."""

STOP_WAIT_MS: Final = 5_000
"""A node that stops answers what it has begun, but does not wait longer for a slow disk or a client that reads nothing."""

TYPED_SETTINGS_MAX: Final = 1_000
"""Different settings of topics that are remembered in their typed form, which takes half a millisecond to make."""

PRODUCERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""What all partitions of a node remember of producers: 131,072 of them, each counted once for each partition that it has written to. Kafka has
no such bound, and any client may write with ids that no broker assigned, which are remembered for `producer.id.expiration.ms`, a day."""

IDLE_PRODUCERS_KEPT_MS: Final = 15 * 60_000
"""While half of that is taken an idle producer is remembered for so long at most: clients give a batch up after two minutes by default."""

PRODUCER_BYTES: Final = 512
"""What one of them takes, with its last five batches."""

VERIFICATION_BYTES: Final = 256
"""What one of `VERIFICATIONS_MAX` takes."""

VERIFICATIONS_MAX: Final = 10_000
"""Producers of one partition whose coordinator is being asked whether their transaction is ongoing, or has said no; of more, the oldest
has to ask again."""

ABORTED_PER_FETCH_MAX: Final = 10_000
"""Aborted transactions that a fetch names for one partition; where there are more in what would be read, less is read."""

SHARE_SESSION_PARTITIONS_MAX: Final = 200_000
"""Partitions in all share sessions together, as of fetch sessions; a session with which there would be more is refused."""

SHARE_PARTITIONS_MAX: Final = 20_000
"""Share partitions that are in memory, each of which takes two kilobytes. At the bound an unused one makes room."""

SHARE_PARTITIONS_LOOKED_AT_MAX: Final = 64
"""Share partitions examined to find an unused one."""

SHARE_RECORDS_MAX: Final = 1_000_000
"""Offsets between the first that is not done with and the last that was fetched, of all share partitions of a node: members may tell of
each by itself, which takes 130 bytes."""

SHARE_GROUP_RECORDS_MAX: Final = SHARE_RECORDS_MAX // 4
"""The same of one group, to leave room for others."""

SHARE_RELEASES_AT_ONCE_MAX: Final = 1_000
"""Share partitions, and records that they have under way, that are looked at for a member that is gone, or for locks that
have ended, while all others wait."""

SHARE_STATES_BYTES_MAX: Final = 64 * 1024 * 1024
"""What all share partitions of a node's share coordinator may take in memory; Kafka has no such bound."""

SHARE_STATE_BYTES: Final = 1024
"""What a share partition takes beside the name of its group and its batches."""

SHARE_STATE_BATCH_BYTES: Final = 160
"""What each of its batches takes."""

SHARE_STATE_BATCHES_MAX: Final = 20_000
"""Batches of one share partition, twice as many as records of it may be on their way at a time: a snapshot is one record."""

SHARE_SPAN_MAX: Final = SHARE_STATE_BATCHES_MAX // 2
"""Offsets of one share partition from the first that is not done with to the last that was fetched, where some wait only for their dead
letters: those that wait do not hold up others until there are so many."""

DEAD_LETTERS_AT_ONCE_MAX: Final = 8
"""Batches of dead letters that a node makes at a time: each may hold a batch of the source out of its codec."""

DEAD_LETTERS_PER_BATCH_MAX: Final = 500
"""Dead letters that one share partition writes at a time."""

DEAD_LETTER_WARNINGS_MAX: Final = 1_000
"""Groups whose dead letters cannot be written that are remembered, so that each is logged once."""

SHARE_STATES_PER_TICK_MAX: Final = 100
"""Share partitions whose snapshots are renewed, or that are forgotten, while all others wait."""

SHARE_STATE_BATCHES_PER_TICK_MAX: Final = 2_000
"""Batches that the snapshots of one turn have: they are put into one batch of the log. What one share partition has is one record."""

SHARE_MEMBER_ID_CHARS_MAX: Final = 36
"""Of the id of a share group's member: as many as one has that a client makes for itself, as in Kafka."""

EXPLAINED_REBALANCES_MAX: Final = 50
"""Rebalances of a group that are kept in memory for `busway groups explain`."""

EXPLAINED_GROUP_BYTES_MAX: Final = 256 * 1024
"""What the rebalances of a group that are kept may take, the last one aside: its answer is one string."""

EXPLAINED_BYTES_MAX: Final = 8 * 1024 * 1024
"""What the rebalances of all groups that are kept may take: those of the groups that were quiet for longest go first."""

EXPLAINED_REASONS_MAX: Final = 100
"""Members of which is kept what happened to them in one rebalance; the others are counted."""

EXPLAINED_MOVES_MAX: Final = 200
"""Partitions of which is kept from whom to whom they went in one rebalance."""

EXPLAINED_TEXT_MAX: Final = 200
"""Characters that are kept of what a client chooses: its names, and the reasons that it gives."""

EXPLAINED_ASSIGNMENT_BYTES_MAX: Final = 64 * 1024
"""Assignments of a classic group that are looked at for who has what: that takes about ten milliseconds."""

OBSERVERS_MAX: Final = 1_000
"""Nodes that copy the metadata log without a vote and are counted by its leader: more are served as well, and wait for nothing."""

OBSERVER_SESSION_MS: Final = 300_000
"""An observer that has not fetched for so long is forgotten, as in Kafka."""

PROPOSALS_MAX: Final = 10_000
"""Batches of the metadata log that wait for a majority: a leader without one keeps accepting them until it notices."""
