"""Expressions that never end, and settings without number."""

import pytest
from tests.support.connect_worker import Rest

from busway_connect.patterns import MATCH_TIMEOUT_S, Pattern, TooLong

ENDLESS = r"(a|aa)+"
NAME = "a" * 100 + "."
SINK = {"connector.class": "CollectingSink", "topics": "t"}
COUNTING = {"connector.class": "CountingSource", "count": "20"}


def test_a_match_without_end_is_given_up_once() -> None:
    """By name of the expression; the same question is not tried again."""
    pattern = Pattern(ENDLESS)
    with pytest.raises(TooLong, match="takes longer than") as first:
        pattern.fullmatch(NAME)
    with pytest.raises(TooLong) as second:
        pattern.fullmatch(NAME)
    assert second.value is first.value
    assert MATCH_TIMEOUT_S < 0.1
    assert Pattern(r"(?!b)A+\.", ignore_case=True).fullmatch(NAME)


async def test_too_many_settings_are_refused(rest: Rest) -> None:
    """With their number."""
    many = {**SINK, **{f"note.{number}": "x" for number in range(2000)}}
    status, found = await rest.call("PUT", "/connectors/x/config", many)
    assert (status, found["error_code"]) == (413, 413)
    assert "2002 settings, 1000 are the most" in found["message"]


@pytest.mark.slow
async def test_an_expression_without_end_fails_its_connector_alone(rest: Rest) -> None:
    """Where records go, and where topics are looked for; in the validate call it is a wrong setting."""
    router = {
        "transforms": "r",
        "transforms.r.type": "RegexRouter",
        "transforms.r.regex": ENDLESS,
        "transforms.r.replacement": "t",
    }
    config = {**COUNTING, "topics": NAME, **router}
    assert (await rest.call("PUT", "/connectors/route/config", config))[0] == 201
    await rest.wait_for("route", "FAILED")
    body = {"connector.class": "CollectingSink", "topics.regex": ENDLESS, "errors.deadletterqueue.topic.name": NAME}
    status, found = await rest.call("PUT", "/connectors/find/config", body)
    assert status == 400
    assert "configuration topics.regex: the expression '(a|aa)+' takes longer than" in found["message"]
