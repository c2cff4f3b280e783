"""Security of a client: its arguments before the environment, and one way at a time."""

from typing import Any

import pytest

from busway import Admin, Consumer, Producer, ShareConsumer
from busway.security.choosing import taken
from busway.security.options import PLAINTEXT, SecurityOptions

TLS = SecurityOptions(security_protocol="SSL", ssl_cafile="ca.pem")


def test_arguments_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which comes before plain text."""
    assert taken({"linger_ms": 1}) == (PLAINTEXT, {"linger_ms": 1})
    monkeypatch.setenv("BUSWAY_SECURITY_PROTOCOL", "SSL")
    assert taken({}) == (SecurityOptions(security_protocol="SSL"), {})
    assert taken({"security_protocol": "SSL", "ssl_cafile": "ca.pem"}) == (TLS, {})
    assert taken({"security": TLS, "acks": 1}) == (TLS, {"acks": 1})
    assert taken({"security": PLAINTEXT}) == (PLAINTEXT, {})


def test_both_ways_at_once_are_refused() -> None:
    """As is another object."""
    with pytest.raises(TypeError, match="ssl_cafile: security is given as an object too"):
        taken({"security": TLS, "ssl_cafile": "other.pem"})
    with pytest.raises(TypeError, match="security: a value of the type dict is not SecurityOptions"):
        taken({"security": {"sasl_plain_password": "x"}})


@pytest.mark.parametrize(
    "make", [Producer, Consumer, Admin, lambda **options: ShareConsumer("topic", group_id="g", **options)]
)
def test_every_client_takes_them(make: Any) -> None:
    """By name or as an object, and refuses what does not fit with the text of the options."""
    make(security_protocol="SSL", ssl_cafile="ca.pem")
    make(security=TLS)
    with pytest.raises(ValueError, match="sasl_mechanism PLAIN needs sasl_plain_username"):
        make(security_protocol="SASL_SSL", sasl_mechanism="PLAIN")
    with pytest.raises(TypeError, match="did you mean ssl_cafile"):
        make(ssl_ca="ca.pem")
