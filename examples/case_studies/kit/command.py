"""A demo as a command: its signals and its exit code.

Here: what every demo does with its end.
Not here: options and the demo itself.
"""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from busway import BuswayError
from kit.parts import DemoFailed, on_signals


def run_demo(demo: Coroutine[Any, Any, int], *problems: type[Exception]) -> int:
    """Run it to its end; its exit code, 1 with one line where a part failed, 130 and 143 where Ctrl-C or another signal ended it.

    Args:
        demo: ended by SIGTERM and SIGHUP as by a cancellation, so that it ends its parts.
        problems: further exceptions that are reported in one line.
    """

    async def ended_by_signals() -> int:
        whole = asyncio.current_task()
        assert whole is not None
        on_signals(whole.cancel, signal.SIGTERM, signal.SIGHUP)
        return await demo

    expected: tuple[type[Exception], ...] = (DemoFailed, BuswayError, *problems)
    try:
        return asyncio.run(ended_by_signals())
    except expected as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except asyncio.CancelledError:
        return 143
