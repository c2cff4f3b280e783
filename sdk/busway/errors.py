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


class NotRunning(BuswayError):
    """The client was not started, or was stopped."""


class DamagedData(BuswayError):
    """A broker sent bytes that are no records; the text names topic, partition and offset."""
