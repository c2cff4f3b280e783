"""Log lines about a disk that refuses appends: one at once, then a count in each interval."""

import pytest

from busway_bus.kernel.limits import DISK_FAILURE_LOG_INTERVAL_MS
from busway_bus.log.disk_failures import DiskFailures

FULL = OSError(28, "No space left on device")
INTERVAL_S = DISK_FAILURE_LOG_INTERVAL_MS / 1000


def test_a_full_disk_is_logged_at_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A hundred failures in an interval are one line; the next interval has how many there were."""
    now = 0.0
    failures = DiskFailures(lambda: now)
    for _ in range(100):
        failures.failed("t-0", FULL)
    assert [record.getMessage() for record in caplog.records] == [
        "cannot write t-0: [Errno 28] No space left on device; clients send again until it works"
    ]
    now = INTERVAL_S
    failures.failed("t-1", FULL)
    assert caplog.messages[1].endswith("; 100 appends have failed since the last line")
    assert failures.failing


def test_a_disk_that_takes_some_appends_gets_two_lines_in_an_interval(caplog: pytest.LogCaptureFixture) -> None:
    """One for what fails and one for what works, however often that changes."""
    failures = DiskFailures(lambda: 0.0)
    for _ in range(100):
        failures.failed("t-0", FULL)
        failures.worked()
    assert len(caplog.records) == 2
    assert not failures.failing
