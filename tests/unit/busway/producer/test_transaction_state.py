"""What a transactional producer may do when."""

import itertools

import pytest

from busway.errors import InvalidTransactionState
from busway.producer.transaction_state import TABLE, Event, State, after


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    """From the beginning, by events of the table."""
    assert set(TABLE) == set(State)
    reached, new = set[State](), {State.NEW}
    while new:
        reached |= new
        new = {after(state, event) for state in new for event in (*TABLE[state], Event.DIE)} - reached
    assert reached == set(State)


def test_a_commit_is_never_taken_back_and_a_broken_transaction_never_committed() -> None:
    """Whatever else the table says."""
    for state, event in itertools.product((State.COMMITTING, State.BROKEN, State.ABORTING), Event):
        following = TABLE[state].get(event)
        assert not (state is State.COMMITTING and following is State.ABORTING)
        assert not (state is not State.COMMITTING and following is State.COMMITTING)
    assert TABLE[State.BROKEN] == {Event.ABORT: State.ABORTING}


def test_who_is_fenced_stays_so() -> None:
    """From any state, and for good."""
    for state in State:
        assert after(state, Event.DIE) is State.OVER
    assert TABLE[State.OVER] == {}


def test_what_users_can_do_wrong_is_told_in_words() -> None:
    """For each of their calls in each state where it does not fit; OVER tells why it is over, before the table is asked."""
    for state, event in itertools.product(set(State) - {State.OVER}, (Event.BEGIN, Event.COMMIT, Event.ABORT)):
        if event in TABLE[state] or (state is State.NEW and event is not Event.BEGIN):
            continue
        if (state, event) == (State.BROKEN, Event.COMMIT):  # reported by what broke it
            continue
        with pytest.raises(InvalidTransactionState) as caught:
            after(state, event)
        assert event.name not in str(caught.value), "this is how a mistake of ours is told"
