"""Expressions that never end, and settings without number."""

import time

import pytest
from tests.support.connect_worker import Rest

from busway_connect.patterns import MATCH_TIMEOUT_S, Pattern, TooLong
from busway_connect.providers import Providers
from busway_connect.redaction import shown

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
    status, response = await rest.call("PUT", "/connectors/x/config", many)
    assert (status, response["error_code"]) == (413, 413)
    assert "2002 settings, 1000 are the most" in response["message"]


def test_what_is_looked_for_in_a_value_is_found_in_time_in_proportion() -> None:
    """Nothing else runs while an expression of `re` looks: a megabyte of beginnings took hours."""
    prefix = "config.providers"
    providers = Providers(
        {prefix: "env", f"{prefix}.env.class": "EnvVarConfigProvider", f"{prefix}.env.param.allowlist.pattern": "HOME"}
    )
    began = time.thread_time()
    assert shown("note", "://:" * 250_000) == "://:" * 250_000
    assert len(shown("note", "://:@" * 200_000)) == 200_000 * len("://:[hidden]@")
    for text in ("${env:" * 170_000, "${" * 500_000, "${env:x$" * 125_000):
        assert providers.resolved({"note": text}) == {"note": text}
    assert time.thread_time() - began < 2
    assert shown("url", "a://b:c@d?password=e&f") == "a://b:[hidden]@d?password=[hidden]&f"


async def test_numbers_and_expressions_that_cannot_be_are_wrong_settings(rest: Rest) -> None:
    """A number of many digits, and an expression without a dead letter topic to try it on."""
    for name, text in (("tasks.max", "9" * 5000), ("topics.regex", "(")):
        config = {"connector.class": "CollectingSink", "topics.regex": "t", name: text}
        status, response = await rest.call("PUT", "/connectors/x/config", config)
        assert status == 400, response
        assert f"for configuration {name}" in response["message"]


async def test_a_worker_takes_so_many_connectors_and_so_many_settings(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each bound by name; settings that come by and by count together."""
    monkeypatch.setattr("busway_connect.runtime.bounds.CONNECTORS_MAX", 2)
    monkeypatch.setattr("busway_connect.runtime.bounds.ALL_CONFIGS_CHARS_MAX", 1500)
    monkeypatch.setattr("busway_connect.runtime.bounds.CONFIG_CHARS_MAX", 1000)
    small = {"connector.class": "CountingSource", "count": "0", "topics": "t"}
    assert (await rest.call("PUT", "/connectors/a/config", small))[0] == 201
    for name, changes, status, text in (
        ("a", {"topics": "t" * 990}, 413, "1000 are the most"),
        ("b", {"topics": "t" * 850}, 201, ""),
        ("a", {"topics": "t" * 700}, 409, "more than 1500 characters"),
        ("c", {}, 409, "There are 2 connectors"),
    ):
        method, body = ("PATCH", changes) if name == "a" else ("PUT", {**small, **changes})
        answered, response = await rest.call(method, f"/connectors/{name}/config", body)
        assert (answered, text in response.get("message", "")) == (status, True), response


async def test_offsets_that_a_person_adds_are_counted(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one request and all together; those that are forgotten count no more."""
    monkeypatch.setattr("busway_connect.runtime.bounds.OFFSETS_MAX", 3)
    monkeypatch.setattr("busway_connect.runtime.bounds.OFFSETS_HELD_MAX", 4)
    config = {"connector.class": "CountingSource", "count": "0", "topics": "t"}
    assert (await rest.call("POST", "/connectors", {"name": "a", "config": config, "initial_state": "STOPPED"}))[
        0
    ] == 201

    async def patch(*numbers: int) -> tuple[int, str]:
        offsets = [{"partition": {"number": number}, "offset": {"at": 1}} for number in numbers]
        status, response = await rest.call("PATCH", "/connectors/a/offsets", {"offsets": offsets})
        return status, response["message"]

    assert await patch(1, 2, 3, 4) == (413, "The request changes 4 offsets, 3 are the most")
    assert (await patch(1, 2, 3))[0] == 200
    assert await patch(4, 5) == (409, "There would be more than 4 offsets; reset those of a connector")
    assert (await rest.call("DELETE", "/connectors/a/offsets"))[0] == 200
    assert (await patch(4, 5))[0] == 200


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
    status, response = await rest.call("PUT", "/connectors/find/config", body)
    assert status == 400
    assert "configuration topics.regex: the expression '(a|aa)+' takes longer than" in response["message"]
