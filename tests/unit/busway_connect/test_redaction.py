"""Passwords do not appear in messages on settings."""

import pytest

from busway_connect.redaction import HIDDEN, References, shown


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("database.password", "s3cret", HIDDEN),
        ("sasl.jaas.config", "…", HIDDEN),
        ("topics", "a,b", "a,b"),
        ("url", "postgresql://me:s3cret@db:5432/x", f"postgresql://me:{HIDDEN}@db:5432/x"),
        ("url", "http://a:p@x,http://b:q@y", f"http://a:{HIDDEN}@x,http://b:{HIDDEN}@y"),
        ("url", "jdbc:x?user=me&password=s3cret&ssl=true", f"jdbc:x?user=me&password={HIDDEN}&ssl=true"),
        ("url", "http://db:5432/x", "http://db:5432/x"),
    ],
)
def test_secrets_are_hidden(name: str, text: str, expected: str) -> None:
    """By the setting's name, and within URLs."""
    assert shown(name, text) == expected


def test_values_of_references_are_replaced() -> None:
    """The message has the reference; where a part of the value would remain it says only that the setting is invalid."""
    references = References(
        {"host": "${file:/x:host}", "port": "5432"}, {"host": "db.internal.example", "port": "5432"}
    )
    assert references.redacted("host", "no such host db.internal.example") == "no such host ${file:/x:host}"
    assert references.redacted("port", "5432 is in use") == "5432 is in use", "it was not a reference"
    part = references.redacted("host", "cannot resolve internal")
    assert "internal" not in part
    assert "${file:/x:host}" in part
