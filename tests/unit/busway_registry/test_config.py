"""Settings that make no sense are refused by name, and nothing listens beyond this machine unasked."""

import pytest

from busway_registry.config import BadSetting, RegistryConfig


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine(host: str) -> None:
    """Loopback needs no word."""
    assert RegistryConfig(host=host).host == host


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "127.example.org", "localhost.example.org", "::1234", ""]
)
def test_other_machines(host: str) -> None:
    """Everything else needs `insecure`, names that look like loopback included."""
    with pytest.raises(BadSetting, match="no authentication"):
        RegistryConfig(host=host)
    assert RegistryConfig(host=host, insecure=True).host == host


@pytest.mark.parametrize("port", [-1, 65536])
def test_ports(port: int) -> None:
    """From 0 to 65535."""
    with pytest.raises(BadSetting, match="port is a number"):
        RegistryConfig(port=port)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("memory:", "memory:"),
        ("sqlite:///r.db", "sqlite+aiosqlite:///r.db"),
        ("sqlite+aiosqlite:////r.db", "sqlite+aiosqlite:////r.db"),
        ("postgres://u:p@h/n", "postgresql+psycopg://u:p@h/n"),
        ("postgresql://u:p@h:5432/n?sslmode=require", "postgresql+psycopg://u:p@h:5432/n?sslmode=require"),
        ("postgresql+psycopg://h/n", "postgresql+psycopg://h/n"),
    ],
)
def test_databases(given: str, taken: str) -> None:
    """URLs as people write them; the driver is the registry's business."""
    assert RegistryConfig(database=given).database == taken


@pytest.mark.parametrize("given", ["mysql://user:secret@host/name", "postgresql+asyncpg://user:secret@host/name", ""])
def test_other_databases(given: str) -> None:
    """Refused with what would do, and a password is not repeated."""
    with pytest.raises(BadSetting, match="postgresql://") as refusal:
        RegistryConfig(database=given)
    assert "secret" not in str(refusal.value)
