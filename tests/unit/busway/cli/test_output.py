"""What commands print."""

import json
import math

import pytest

from busway.cli.output import write_json


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def test_json_is_what_any_parser_reads(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither NaN nor Python's way to write bytes, however deep."""
    write_json({"value": {"mean": math.nan, "most": [math.inf, -math.inf], "raw": b"\x00\xff", b"k": (1, None)}})
    found = json.loads(capsys.readouterr().out, parse_constant=_refuse)
    assert found["value"] == {
        "mean": "NaN",
        "most": ["Infinity", "-Infinity"],
        "raw": "base64:AP8=",
        "base64:aw==": [1, None],
    }
