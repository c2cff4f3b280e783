"""Limits of the REST API: each refusal has its status and names the limit."""

import pytest

from busway_connect.runtime import bounds
from busway_connect.runtime.refusals import Refused


def refused(*arguments: object) -> Refused:
    """The refusal of `require_room`."""
    with pytest.raises(Refused) as refusal:
        bounds.require_room(*arguments)  # type: ignore[arg-type]
    return refusal.value


def test_connectors_within_the_limits_are_accepted() -> None:
    """At each limit exactly."""
    bounds.require_room("c", {"a": "b"}, [1] * (bounds.CONNECTORS_MAX - 1))
    bounds.require_room("c", {"a": "x" * (bounds.CONFIG_CHARS_MAX - 1)}, [])
    bounds.require_few_offsets(bounds.OFFSETS_MAX, bounds.OFFSETS_HELD_MAX - bounds.OFFSETS_MAX)


def test_what_is_above_a_limit_is_refused() -> None:
    """413 for the request, 409 for a full worker."""
    assert refused("c", dict.fromkeys(map(str, range(bounds.SETTINGS_MAX + 1)), ""), []).status == 413
    assert refused("c", {"a": "x" * bounds.CONFIG_CHARS_MAX}, []).status == 413
    assert refused("c", {"a": "b"}, [1] * bounds.CONNECTORS_MAX).status == 409
    assert refused("c", {"a": "b"}, [bounds.ALL_CONFIGS_CHARS_MAX]).status == 409
    for added, held, status in ((bounds.OFFSETS_MAX + 1, 0, 413), (1, bounds.OFFSETS_HELD_MAX, 409)):
        with pytest.raises(Refused) as refusal:
            bounds.require_few_offsets(added, held)
        assert refusal.value.status == status
