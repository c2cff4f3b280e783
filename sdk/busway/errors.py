"""What can go wrong, in users' words.

What lives here: the exceptions of the SDK. Each names the broker, topic or partition concerned and what to do.
"""

from busway_protocol.errors import ErrorCode


class BuswayError(Exception):
    """Base of all errors of the SDK."""


class ConnectionFailed(BuswayError):
    """A broker cannot be reached, or the connection ended."""


class RequestTimedOut(BuswayError):
    """A broker did not answer in time."""


class BrokerError(BuswayError):
    """A broker refused a request.

    Attributes:
        code: the protocol's error code.
    """

    def __init__(self, code: ErrorCode, what: str, text: str | None = None) -> None:
        super().__init__(f"{what}: {text or code.text} ({code.name})")
        self.code = code

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code.retriable


class UnsupportedByBroker(BuswayError):
    """The broker does not serve a request, or no version that this client speaks."""


class MessageTooLarge(BuswayError):
    """A record is larger than max_request_size."""


class DeliveryFailed(BuswayError):
    """A record was not acknowledged within delivery_timeout_ms; the text tells whether it may have been written."""


class OffsetReset(BuswayError):
    """A partition has no committed offset, or the offset is gone, and auto_offset_reset is none."""


class CommitFailed(BuswayError):
    """Offsets were not committed because the group has moved on; the partitions belong to others now."""


class AcknowledgementFailed(BuswayError):
    """What became of a share group's record was not taken: its lock had ended, or its leader has moved. It comes again, to whomever."""


class TransactionFailed(BuswayError):
    """A transaction cannot go on. Raised as it is, the producer cannot go on either: what the text names has to be mended, and a new
    producer started. `TransactionAbortable` says that the next transaction may succeed (KIP-1050).

    Attributes:
        code: the protocol's error code; None where no broker refused anything.
    """

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code


class TransactionAbortable(TransactionFailed):
    """This transaction cannot be committed any more: abort it and do its work again in another one; the producer goes on."""


class ProducerFenced(TransactionFailed):
    """Another producer with the same transactional_id has taken over, or the transaction was open for longer than its timeout. Nothing
    that this producer has not committed will be; stop it."""


class TransactionInDoubt(TransactionFailed):
    """A commit was asked for and not answered in time: whether the transaction is committed is not known. `commit_transaction()` asks
    again, and so does nothing else."""


class InvalidTransactionState(BuswayError):
    """A call that does not fit what the producer's transaction is doing: a record outside of a transaction, say. A mistake in the
    program."""


class NotRunning(BuswayError):
    """The client was not started, or was stopped."""


class DamagedData(BuswayError):
    """A broker sent bytes that are no records; the text names topic, partition and offset."""
