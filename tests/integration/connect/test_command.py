"""`busway connect`, as users call it."""

from pathlib import Path

import pytest
from tests.integration.cli.conftest import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--bootstrap-servers", "127.0.0.1:1", "--port", "0"], "127.0.0.1:1"),
        (["--override", "nothing"], "give name=value"),
        (["-o", "sasl.jaas.config=x s3cret"], "--override sasl.jaas.config: every user of this machine can read arguments; put it into"),
        (["--host", "0.0.0.0"], "no authentication"),
        (["--override", "plugin.modules=no.such.module", "--port", "0"], "plugin.modules: no.such.module cannot be imported"),
    ],
)  # fmt: skip
def test_what_keeps_it_from_starting_is_one_line(arguments: list[str], says: str) -> None:
    """Exit code 1 and the remedy."""
    done = run("connect", *arguments)
    assert done.code == 1
    assert says in done.err
    assert len(done.err.strip().splitlines()) <= 3


def test_a_line_of_the_file_that_is_no_setting_is_named(tmp_path: Path) -> None:
    """By its number."""
    file = tmp_path / "worker.properties"
    file.write_text("# a worker\ngroup.id=g\n\nnothing\n")
    done = run("connect", "--config", str(file))
    assert done.code == 1
    assert "worker.properties:4: the line is no name=value" in done.err
