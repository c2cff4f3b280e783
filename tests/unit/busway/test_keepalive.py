"""Socket options of a connection."""

import socket

import pytest

from busway.net.keepalive import COUNT, GONE_S, IDLE_S, INTERVAL_S, keep_alive


@pytest.mark.parametrize(("timeout_s", "unacknowledged_s"), [(60.0, 60), (1.0, GONE_S)])
def test_the_kernel_asks_whether_the_other_end_is_there(timeout_s: float, unacknowledged_s: int) -> None:
    """In seconds, not hours; for an acknowledgement it waits as long as for an answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        keep_alive(sock, timeout_s)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
        for name, number in (
            ("TCP_KEEPIDLE", IDLE_S),
            ("TCP_KEEPINTVL", INTERVAL_S),
            ("TCP_KEEPCNT", COUNT),
            ("TCP_USER_TIMEOUT", unacknowledged_s * 1000),
        ):
            if hasattr(socket, name):
                assert sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == number


def test_a_socket_that_knows_no_keepalive_is_left_as_it_is() -> None:
    """A socket of the file system, say."""
    ends = socket.socketpair()
    with ends[0], ends[1]:
        keep_alive(ends[0], 30.0)
