"""Log lines that could come thousands of times a minute."""

import logging

import pytest

from busway.cluster.rate_limited_log import EVERY_S, RateLimitedLog


def test_the_same_thing_is_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """The first line at once, then one each interval with the number of those left out; other things are logged on their own."""
    now = 0.0
    rate_limited_log = RateLimitedLog(logging.getLogger("busway.test"), lambda: now)
    with caplog.at_level(logging.INFO, "busway.test"):
        for now in (0.0, 1.0, 2.0, EVERY_S):
            rate_limited_log.log(logging.INFO, "one", "at %g", now)
        rate_limited_log.log(logging.INFO, "other", "at %g", now)
    assert caplog.messages == ["at 0", "at 10 (2 more like this since the last line)", "at 10"]
