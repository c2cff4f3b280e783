"""Is the server well? `health.py PORT` asks a broker on this machine for its versions, `health.py URL` a web server.

Here: one question with a short deadline, for the health checks of the images, which hold neither curl nor a shell's
tools.
"""

import socket
import sys
import urllib.request

DEADLINE_S = 3.0
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""Length; key 18, version 0, correlation 1, no client id. Every broker answers it, and only its event loop can."""


def broker(port: int) -> bool:
    """Whether it answers."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
        connection.sendall(API_VERSIONS)
        return connection.recv(8, socket.MSG_WAITALL)[4:] == API_VERSIONS[8:12]


def web(url: str) -> bool:
    """Whether it answers with 200."""
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:  # noqa: S310 - the address is in the image
        return bool(answer.status == 200)


if __name__ == "__main__":
    asked = sys.argv[1]
    try:
        well = broker(int(asked)) if asked.isdecimal() else web(asked)
    except OSError as problem:
        sys.exit(f"{asked}: {problem}")
    sys.exit(None if well else f"{asked}: the answer is wrong")
