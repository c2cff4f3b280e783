"""A port that is held: for its holder alone."""

import socket

import pytest

from busway_bus.testing.ports import HOLDS, HeldPort

pytestmark = pytest.mark.skipif(not HOLDS, reason="Linux alone can hold a port")


def exchange(port: int) -> bytes:
    """What a client gets from a server that listens there for a moment."""
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(b"here")
        return client.recv(4)


def test_a_server_may_come_and_go_on_a_held_port() -> None:
    """Who comes while none is there is refused at once."""
    held = HeldPort()
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", held.number))
        assert exchange(held.number) == b"here"


def test_nobody_else_holds_it_until_it_is_released() -> None:
    """Nor is it given to who asks for any: that needs it to be free."""
    held = HeldPort()
    with pytest.raises(OSError, match="in use"):
        HeldPort(held.number)
    held.release()
    assert HeldPort(held.number).number == held.number
