"""The worker's exception for refused requests."""


class Refused(Exception):
    """A refused request.

    Attributes:
        status: HTTP status and Kafka Connect's `error_code`.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
