"""A type checker sees the message classes as what they are."""

from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[3]

WRONG = """
from busway_protocol.compile import decode
from busway_protocol.messages.groups_classic import HeartbeatRequest

HeartbeatRequest(group_id="g", generation_id=1)
HeartbeatRequest(group_id="g", generation_id="1", member_id="m")
HeartbeatRequest("g", 1, "m")
decode(HeartbeatRequest, 4, b"").group_instance_id.upper()
decode(HeartbeatRequest, 4, b"").grup_id
"""

RIGHT = """
from busway_protocol.compile import decode, encode
from busway_protocol.messages.fetch import FetchRequest, FetchTopic

request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[])])
names: list[str] = [topic.topic for topic in decode(FetchRequest, 12, encode(request, 12)).topics]
"""


@pytest.mark.slow
def test_mypy_finds_the_mistakes_and_nothing_else(tmp_path: Path) -> None:
    """A missing field, a wrong type, positions, an unguarded None and a misspelt name are found; right code passes."""
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "right.py").write_text(RIGHT)
    settings = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path / "cache")]
    output, problems, _ = api.run([*settings, str(tmp_path / "wrong.py"), str(tmp_path / "right.py")])
    assert not problems
    errors = [line for line in output.splitlines() if ": error:" in line]
    assert {int(line.split(":")[1]) for line in errors} == {5, 6, 7, 8, 9}, output
    assert all("wrong.py" in line for line in errors)
