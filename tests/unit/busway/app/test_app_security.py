"""Security of an app: given to it, from the environment, and plain text under test."""

import pytest

from busway import App, SecurityOptions
from busway.security.options import PLAINTEXT

TLS = SecurityOptions(security_protocol="SSL", ssl_cafile="ca.pem")


def test_an_app_takes_its_security_or_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its argument counts more."""
    assert App("shop").security == PLAINTEXT
    monkeypatch.setenv("BUSWAY_SECURITY_PROTOCOL", "SSL")
    assert App("shop").security == SecurityOptions(security_protocol="SSL")
    assert App("shop", security=TLS).security == TLS


@pytest.mark.slow
async def test_under_test_an_app_uses_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its broker is in this process; afterwards the app has its own security again."""
    monkeypatch.setenv("BUSWAY_SECURITY_PROTOCOL", "SSL")
    app = App("shop", security=TLS)
    orders = app.topic("orders", key=str, value=str, format="json")
    handled = []

    @app.subscribe(orders)
    async def handle(order: str) -> None:
        handled.append(order)

    async with app.test() as bus:
        await bus.send(orders, "a", key="k")
        await bus.settle()
        assert app.security == PLAINTEXT
    assert handled == ["a"]
    assert app.security == TLS
