"""Principals in forwarded requests."""

import pytest

from busway_protocol.errors import ProtocolError
from busway_protocol.principals import DefaultPrincipalData, principal_bytes, principal_from


def test_a_principal_is_written_behind_its_version() -> None:
    """The bytes are those of Kafka's DefaultKafkaPrincipalBuilder."""
    alice = DefaultPrincipalData(type="User", name="alice", token_authenticated=True)
    assert principal_bytes(alice) == b"\x00\x00\x05User\x06alice\x01\x00"
    assert principal_from(principal_bytes(alice)) == alice


@pytest.mark.parametrize("content", [b"", b"\x00", b"\x00\x01\x05User\x06alice\x01\x00", b"\x00\x00\x05Us"])
def test_a_principal_that_cannot_be_read(content: bytes) -> None:
    """An unknown version, or too few bytes."""
    with pytest.raises(ProtocolError):
        principal_from(content)
