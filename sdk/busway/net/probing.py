"""Whether a process still listens on an address.

Here: a connection that is closed at once.
Not here: what follows from it.
"""

import asyncio
import errno

from busway.net.clock import REAL_TIME


async def is_refused(host: str, port: int, timeout_s: float) -> bool:
    """Whether connections are refused: no process listens on any address of the host.

    False without an answer: the network may be cut.
    """
    try:
        async with REAL_TIME.timeout(timeout_s):
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)
    except ConnectionRefusedError:
        return True
    except TimeoutError:
        return False
    except OSError as problem:
        # asyncio joins the errors of several addresses into one text.
        refused, text = f"[Errno {errno.ECONNREFUSED}]", str(problem)
        return problem.errno is None and 0 < text.count(refused) == text.count("[Errno")
    transport.abort()
    return False
