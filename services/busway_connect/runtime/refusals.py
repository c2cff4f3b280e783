"""The one exception by which the worker says no to a request."""


class Refused(Exception):
    """A request cannot be met.

    Attributes:
        status: the HTTP status, which is also Kafka Connect's `error_code`.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
