"""Exceptions of the SDK.

Here: errors with a text for users; each names the broker, topic or partition, and a remedy.
"""

from busway_protocol.errors import ErrorCode


class BuswayError(Exception):
    """Base of all errors of the SDK."""


class ConnectionFailed(BuswayError):
    """A broker cannot be reached, or the connection broke."""


class AuthenticationFailed(ConnectionFailed):
    """Broker and client do not accept each other: credentials, certificate or mechanism.

    Trying again does not help, so clients raise it at once. The text has the cause and a remedy, and no secrets.
    """


class RequestTimedOut(BuswayError):
    """A broker did not answer in time."""


class BrokerError(BuswayError):
    """A broker refused a request.

    Attributes:
        code: error code of the protocol.
    """

    def __init__(self, code: ErrorCode, what: str, text: str | None = None) -> None:
        super().__init__(f"{what}: {text or code.text} ({code.name})")
        self.code = code

    @property
    def retriable(self) -> bool:
        """Whether a retry may succeed."""
        return self.code.retriable


class UnsupportedByBroker(BuswayError):
    """The broker lacks a request, or all versions that this client supports."""


class MessageTooLarge(BuswayError):
    """A record is larger than max_request_size."""


class DeliveryFailed(BuswayError):
    """A record was not acknowledged within delivery_timeout_ms. The text says whether it may have been written."""


class OffsetReset(BuswayError):
    """A partition has no valid committed offset, and auto_offset_reset is none."""


class CommitFailed(BuswayError):
    """Offsets were not committed: a rebalance gave the partitions to other members."""


class AcknowledgementFailed(BuswayError):
    """An acknowledgement was refused: the lock expired, or the leader moved. The record is delivered again."""


class TransactionFailed(BuswayError):
    """A transaction cannot continue.

    Raised as this class itself it is fatal for the producer: mend the cause named in the text and start a new producer.
    After `TransactionAbortable` the next transaction may succeed (KIP-1050).

    Attributes:
        code: error code of the protocol; None if no broker refused anything.
    """

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code


class TransactionAbortable(TransactionFailed):
    """The transaction must be aborted and repeated. The producer stays usable."""


class ProducerFenced(TransactionFailed):
    """Another producer took over the transactional_id, or the transaction timed out.

    Uncommitted work of this producer will never be committed; stop it.
    """


class TransactionInDoubt(TransactionFailed):
    """A commit was not answered in time, and its outcome is unknown.

    Only `commit_transaction()` may be called: it asks again.
    """


class InvalidTransactionState(BuswayError):
    """A mistake in the program: the call does not fit the transaction's state."""


class NotRunning(BuswayError):
    """The client is not started, or stopped."""


class DamagedData(BuswayError):
    """A broker sent invalid record bytes. The text has topic, partition and offset."""
