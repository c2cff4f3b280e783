"""The search for a part that suffices."""

from busway.testing.simulation.shrinking import ddmin


def test_ddmin_finds_the_pair_that_fails_together() -> None:
    """Two of a hundred, far from each other."""
    tries = []

    def fails(items: object) -> bool:
        tries.append(items)
        return {17, 83} <= set(items)  # type: ignore[call-overload]

    assert ddmin(range(100), fails) == [17, 83]
    assert len(tries) < 100
    assert ddmin(range(5), lambda _: True) == []
    assert ddmin([1], lambda items: 1 in items) == [1]
