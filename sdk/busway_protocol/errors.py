"""Error codes of the Kafka protocol, and errors of codecs.

Here: `ErrorCode` (Kafka 4.3.1's numbers, names, retriability, texts).
Not here: errors of the SDK (`busway.errors`).
"""

from enum import IntEnum
from typing import Final


class ProtocolError(ValueError):
    """Bytes or a message that violate the protocol."""


class MalformedMessage(ProtocolError):
    """Bytes that are not the expected message; nothing was allocated beyond their size."""


class UnencodableMessage(ProtocolError):
    """A message that cannot be encoded in the version; the text has the field."""


class FrameRefused(ProtocolError):
    """A frame size that is negative or above the limit, in bytes; `head` has at most 16 bytes from the size on."""

    def __init__(self, size: int, head: bytes, max_size: int) -> None:
        super().__init__(f"a frame of {size} bytes is announced, at most {max_size} are accepted")
        self.size = size
        self.head = head
        self.max_size = max_size


class ErrorCode(IntEnum):
    """Error codes of the protocol."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        return self in _RETRIABLE

    @property
    def text(self) -> str:
        return _TEXTS[self]


_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

_TEXTS: Final = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed in a way it did not expect; its log says more",
    ErrorCode.NONE: "no error",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside the range of offsets that the partition holds",
    ErrorCode.CORRUPT_MESSAGE: "the checksum of a record batch does not match its content, or its size is wrong",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist on this broker",
    ErrorCode.INVALID_FETCH_SIZE: "the fetch size is not usable",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader right now",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker is not a replica that may serve the request; look the leader up again",
    ErrorCode.REQUEST_TIMED_OUT: "the request was not done within its timeout",
    ErrorCode.BROKER_NOT_AVAILABLE: "the broker is not available",
    ErrorCode.REPLICA_NOT_AVAILABLE: "the replica is not available",
    ErrorCode.MESSAGE_TOO_LARGE: "a record batch is larger than max.message.bytes of its topic",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the text stored with an offset is longer than offset.metadata.max.bytes",
    ErrorCode.NETWORK_EXCEPTION: "the connection ended before the answer came",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading its state",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no coordinator is available",
    ErrorCode.NOT_COORDINATOR: "this broker is not the coordinator; look it up again",
    ErrorCode.INVALID_TOPIC_EXCEPTION: 'the topic name is not allowed: 1 to 249 letters, digits, dots, underscores or hyphens, not "." or ".."',
    ErrorCode.RECORD_LIST_TOO_LARGE: "a batch of records is larger than a segment may be",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "the records were written, but to fewer in-sync replicas than min.insync.replicas asks for",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.ILLEGAL_GENERATION: "the generation is not the current one of the group; join again",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the member shares no assignment protocol with the rest of its group",
    ErrorCode.INVALID_GROUP_ID: "the group id is empty or not allowed",
    ErrorCode.UNKNOWN_MEMBER_ID: "the coordinator does not know this member; join again",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing; join again",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "the committed offset does not fit a record",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed on this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed on this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed on this cluster",
    ErrorCode.INVALID_TIMESTAMP: "a timestamp is further from the broker clock than the topic allows",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the SASL mechanism is not enabled on this broker",
    ErrorCode.ILLEGAL_SASL_STATE: "the request is not allowed in this state of the authentication",
    ErrorCode.UNSUPPORTED_VERSION: "this version of the request is not served",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic already exists",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not usable",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor is below 1 or above the number of brokers",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the replica assignment names brokers that do not exist or is not consecutive",
    ErrorCode.INVALID_CONFIG: "a configuration value is not usable",
    ErrorCode.NOT_CONTROLLER: "this broker is not the controller",
    ErrorCode.INVALID_REQUEST: "the request contradicts itself or the protocol",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the record format does not support this request",
    ErrorCode.POLICY_VIOLATION: "a limit of this broker forbids the request",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a sequence number of the producer is missing before this one",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "the batch was written before and is no longer remembered well enough to name its offset",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer with the same id has taken over",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not in a state that allows this",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the producer id does not belong to this transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the transaction timeout is above transaction.max.timeout.ms",
    ErrorCode.CONCURRENT_TRANSACTIONS: "another operation on this transaction is under way",
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk failed; the data directory is offline",
    ErrorCode.LOG_DIR_NOT_FOUND: "the data directory does not exist",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "authentication failed",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the broker holds no state of this producer id",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "a reassignment of the partition is under way",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "the fetch session is gone; start a new one",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "the epoch of the fetch session is not the expected one",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable is false",
    ErrorCode.FENCED_LEADER_EPOCH: "the leader epoch is older than the current one; look the leader up again",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the leader epoch is newer than the one this broker knows",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the compression type is not allowed in this version of the request",
    ErrorCode.OFFSET_NOT_AVAILABLE: "the new leader has not caught up far enough to answer yet",
    ErrorCode.MEMBER_ID_REQUIRED: "join again with the member id in this answer",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has group.max.size members already",
    ErrorCode.FENCED_INSTANCE_ID: "another member has taken this group.instance.id over",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group are subscribed to the topic",
    ErrorCode.INVALID_RECORD: "a record batch contradicts itself or a rule of its topic",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "offsets of an open transaction are not decided yet",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the quota is used up for now",
    ErrorCode.PRODUCER_FENCED: "a newer producer with the same transactional id has taken over",
    ErrorCode.RESOURCE_NOT_FOUND: "the resource does not exist",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id here",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the topic was created again under another id",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id is not known",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "the fetch session mixes topic names and topic ids",
    ErrorCode.FENCED_MEMBER_EPOCH: "the coordinator has fenced this member epoch",
    ErrorCode.STALE_MEMBER_EPOCH: "the member epoch is not the current one",
    ErrorCode.STALE_CONTROLLER_EPOCH: "the request comes from a controller that has been replaced",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "the marker comes from a transaction coordinator that has been replaced",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "no right to use this transactional id",
    ErrorCode.SECURITY_DISABLED: "access control is switched off on this cluster",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "not tried, because another part of the same request failed",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "delegation tokens are switched off on this cluster",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "no such delegation token exists",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "the delegation token belongs to someone else",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "delegation tokens cannot be asked for over this kind of connection",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "no right to use delegation tokens here",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the delegation token has run out",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "this type of principal is not known",
    ErrorCode.LISTENER_NOT_FOUND: "the partition's leader has no listener of the name that the request came in by",
    ErrorCode.STALE_BROKER_EPOCH: "the broker has registered again since it sent this",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is down or not in sync",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica that may lead is available",
    ErrorCode.ELECTION_NOT_NEEDED: "the partition already has the leader that an election would give it",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "the partition is not being moved",
    ErrorCode.DUPLICATE_RESOURCE: "the request names the same thing twice",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "the credential breaks the rules for credentials",
    ErrorCode.INCONSISTENT_VOTER_SET: "the sender's voter set is not the one known here",
    ErrorCode.INVALID_UPDATE_VERSION: "the feature cannot be set to that level",
    ErrorCode.FEATURE_UPDATE_FAILED: "the features could not be changed",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "the forwarded principal cannot be read",
    ErrorCode.SNAPSHOT_NOT_FOUND: "the snapshot asked for does not exist",
    ErrorCode.POSITION_OUT_OF_RANGE: "the position lies outside the snapshot",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "a live broker already has this id",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "no broker with this id is registered",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the sender belongs to another cluster",
    ErrorCode.INELIGIBLE_REPLICA: "the replica may not join the in-sync set now",
    ErrorCode.NEW_LEADER_ELECTED: "the change made another replica leader",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "the records at this offset are in remote storage only",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member of the group still holds this instance id",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the group's coordinator does not have this assignor",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "the request is for a broker and came to a controller, or the other way round",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "this type of endpoint is not known",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "no controller has this id",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "the telemetry subscription is out of date or was never given",
    ErrorCode.TELEMETRY_TOO_LARGE: "the pushed metrics are larger than accepted",
    ErrorCode.INVALID_REGISTRATION: "the registration contradicts what the cluster knows",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction cannot continue and must be aborted",
    ErrorCode.INVALID_RECORD_STATE: "a record of the share group is not in a state that allows this",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "no such share session is open",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "the share session's epoch is not the next one",
    ErrorCode.FENCED_STATE_EPOCH: "the share state has been taken over under a higher epoch",
    ErrorCode.INVALID_VOTER_KEY: "the voter key is not this server's",
    ErrorCode.DUPLICATE_VOTER: "the voter is already in the voter set",
    ErrorCode.VOTER_NOT_FOUND: "the voter is not in the voter set",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the regular expression cannot be read",
    ErrorCode.REBOOTSTRAP_REQUIRED: "the client has to start over from its bootstrap servers",
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "the streams topology is not valid",
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "the epoch of the streams topology is not valid",
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "a newer streams topology is in force",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "the broker has as many share sessions open as it allows",
}


class KafkaError(Exception):
    """An error code with its text; raised by handlers and converted to a response by dispatch."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{code.name}: {message or code.text}")
        self.code = code
        self.message = message or code.text


def error_for(code: int) -> ErrorCode:
    """Return the code of a number; unknown ones become UNKNOWN_SERVER_ERROR, as in Kafka's clients."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
