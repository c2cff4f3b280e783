"""Moments that are put off all the time: the earliest is known without looking at all, and nothing piles up."""

from hypothesis import given
from hypothesis import strategies as st

from busway_bus.kernel.deadlines import Deadlines

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcde"), st.integers(0, 50)),
        st.tuples(st.just("discard"), st.sampled_from("abcde"), st.just(0)),
        st.tuples(st.just("due"), st.just(""), st.integers(0, 50)),
    ),
    max_size=40,
)


@given(STEPS)
def test_it_is_a_table_with_the_least_moment_of_each(steps: list[tuple[str, str, int]]) -> None:
    """Whatever the order: a later moment is not taken for an earlier one, and what is due comes once, the earliest first."""
    deadlines, table = Deadlines(), dict[str, int]()
    for step, key, moment in steps:
        if step == "put":
            deadlines.put(key, moment)
            table[key] = min(moment, table.get(key, moment))
        elif step == "discard":
            deadlines.discard(key)
            table.pop(key, None)
        else:
            expected = sorted((at, key) for key, at in table.items() if at <= moment)
            assert deadlines.due(moment) == [key for _, key in expected]
            table = {key: at for key, at in table.items() if at > moment}
        assert deadlines.earliest() == min(table.values(), default=None)


def test_no_more_is_taken_out_than_asked_for() -> None:
    """The rest is still due."""
    deadlines = Deadlines()
    for number in range(5):
        deadlines.put(f"k{number}", number)
    assert deadlines.due(9, at_most=2) == ["k0", "k1"]
    assert deadlines.earliest() == 2


def test_what_comes_and_goes_leaves_nothing_behind() -> None:
    """Members that join and leave a hundred thousand times within one session."""
    deadlines = Deadlines()
    for number in range(100_000):
        deadlines.put(f"k{number}", 1_000_000)
        deadlines.discard(f"k{number}")
    assert len(deadlines._heap) < 100
