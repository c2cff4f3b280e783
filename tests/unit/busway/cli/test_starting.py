"""What the commands that start a server share: settings by name, and one line for what keeps it from starting."""

from typing import Any

import pytest

from busway.cli.output import CommandFailed
from busway.cli.starting import overrides, serve


def test_settings_are_given_by_name() -> None:
    """A value may hold another equals sign; the last one counts; what is no setting is named."""
    assert overrides(None) == overrides([]) == {}
    assert overrides(["a = 1", "b=x=y", "a=2", "c="]) == {"a": "2", "b": "x=y", "c": ""}
    with pytest.raises(CommandFailed, match=r"--override a: give name=value"):
        overrides(["b=1", "a"])


@pytest.mark.parametrize(
    ("problem", "raised"),
    [
        (KeyError("k"), KeyError),
        (ValueError("no good"), CommandFailed),
        (OSError("no such disk"), CommandFailed),
        (PermissionError(13, "denied"), PermissionError),
        (CommandFailed("told already"), CommandFailed),
    ],
)
def test_what_keeps_a_server_from_starting_is_one_line(problem: Exception, raised: type[Exception]) -> None:
    """In its own words; what the operating system said, and a mistake of ours, go on as they are."""

    def run(_: Any) -> None:
        raise problem

    with pytest.raises(raised) as error:
        serve(run, lambda: None, (ValueError, OSError))
    assert str(error.value) == str(problem)


@pytest.mark.parametrize("name", ["sasl.jaas.config", "producer.sasl.jaas.config", "ssl.key.password"])
def test_a_secret_is_no_argument(name: str) -> None:
    """A reference to one is."""
    with pytest.raises(CommandFailed, match=f"--override {name}: every user") as refused:
        overrides([f"{name}=x s3cret"])
    assert "s3cret" not in str(refused.value)
    assert overrides([f"{name}=${{file:/secrets:it}}"]) == {name: "${file:/secrets:it}"}
