"""Waiting for a signal that asks a process to end."""

import asyncio
import signal

import pytest

from busway.net.signals import ENDING, until_signal


@pytest.mark.parametrize("number", ENDING)
async def test_the_first_signal_is_waited_for_and_the_second_one_ends_the_process(number: signal.Signals) -> None:
    """From the call on; after the first signal both have Python's own effect again."""
    stopped = until_signal()
    signal.raise_signal(number)
    await stopped
    assert [signal.getsignal(ending) for ending in ENDING] == [signal.default_int_handler, signal.SIG_DFL]


async def test_what_serves_may_end_by_itself() -> None:
    """One of the events is enough; signals are still listened to while it is ended in order."""
    failed, other = asyncio.Event(), asyncio.Event()
    stopped = until_signal(failed, other)
    await asyncio.sleep(0)
    assert not stopped.done()
    other.set()
    await stopped
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    signal.raise_signal(signal.SIGTERM)
    while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        await asyncio.sleep(0)
