"""Each check of share groups finds the history that was made for it, and leaves alone the one beside it that is right."""

from collections.abc import Callable

import pytest

from tests.simulation.checks import check
from tests.simulation.history import Outcome, Seen, value_of
from tests.simulation.made_shares import LOCK_MS, A, Made
from tests.simulation.share_checks import ACCEPT, REJECT, RELEASE, RENEW
from tests.simulation.share_history import ShareTaken
from tests.simulation.transaction_history import Transaction


def taken_and_accepted(history: Made) -> None:
    history.sends()
    history.gives("m")
    history.says("m", ACCEPT)
    history.goes_on(0, 1)


def accepted_and_given_again(history: Made) -> None:
    history.gives("m")
    history.says("m", ACCEPT)
    history.pass_ms(2 * LOCK_MS)
    history.gives("n", 2)


def rejected_and_given_again(history: Made) -> None:
    history.gives("m")
    history.says("m", REJECT)
    history.pass_ms(2 * LOCK_MS)
    history.gives("n", 2)


def an_accept_that_nobody_answered(history: Made) -> None:
    history.gives("m")
    history.says("m", ACCEPT, outcome=Outcome.INFO)
    history.pass_ms(2 * LOCK_MS)
    history.gives("n", 2)


def an_accept_that_was_refused(history: Made) -> None:
    history.gives("m")
    history.says("m", ACCEPT, "INVALID_RECORD_STATE")
    history.pass_ms(2 * LOCK_MS)
    history.gives("n", 2)


def an_accept_before_a_reset(history: Made) -> None:
    history.gives("m")
    history.says("m", ACCEPT)
    history.resets(0)
    history.gives("n")


def an_accept_before_a_reset_that_was_refused(history: Made) -> None:
    history.gives("m")
    history.says("m", ACCEPT)
    history.resets(0, Outcome.FAIL)
    history.pass_ms(2 * LOCK_MS)
    history.gives("n", 2)


def two_have_it(history: Made) -> None:
    history.gives("m")
    history.gives("n", 2)


def one_after_the_other(history: Made) -> None:
    history.gives("m")
    history.pass_ms(LOCK_MS)
    history.gives("n", 2)


def one_gives_it_back(history: Made) -> None:
    history.gives("m")
    history.says("m", RELEASE)
    history.gives("n", 2)


def one_renews_it(history: Made) -> None:
    history.gives("m")
    history.says("m", RENEW)
    history.gives("n", 2)


def one_is_cut_off(history: Made) -> None:
    history.gives("m")
    history.happens("cut")
    history.gives("n", 2)


def one_has_lost_its_session(history: Made) -> None:
    history.gives("m")
    history.request("m", outcome=Outcome.INFO)
    history.gives("n", 2)


def the_broker_has_forgotten(history: Made) -> None:
    history.gives("m")
    history.happens("crash")
    history.gives("n")


def another_ones_record_is_accepted(history: Made) -> None:
    history.gives("m")
    history.pass_ms(LOCK_MS)
    history.gives("n", 2)
    history.says("m", ACCEPT)


def another_ones_record_is_not_accepted(history: Made) -> None:
    history.gives("m")
    history.pass_ms(LOCK_MS)
    history.gives("n", 2)
    history.says("m", ACCEPT, "INVALID_RECORD_STATE")


def a_record_that_another_one_is_done_with(history: Made) -> None:
    history.gives("m")
    history.pass_ms(LOCK_MS)
    history.gives("n", 2)
    history.says("n", ACCEPT)
    history.says("m", ACCEPT)


def counted_lower(history: Made) -> None:
    history.gives("m", 2)
    history.pass_ms(2 * LOCK_MS)
    history.gives("n", 2)


def counted_lower_after_a_crash(history: Made) -> None:
    history.gives("m", 2)
    history.happens("crash")
    history.gives("n", 2)


def counted_lower_though_it_was_given_back(history: Made) -> None:
    history.gives("m", 2)
    history.says("m", RELEASE)
    history.happens("crash")
    history.gives("n", 2)


def given_back_as_it_was_counted_after_a_crash(history: Made) -> None:
    history.gives("m", 3)
    history.happens("crash")
    history.gives("m", 2)
    history.says("m", RELEASE)
    history.gives("n", 3)


def given_too_often(history: Made) -> None:
    history.happens("share group", "g 2")
    history.gives("m", 3)


def given_as_often_as_may_be(history: Made) -> None:
    history.sends()
    history.happens("share group", "g 2")
    history.gives("m", 2)
    history.goes_on(0, 1)


def goes_back(history: Made) -> None:
    history.goes_on(3)
    history.goes_on(2)


def goes_back_as_it_was_told(history: Made) -> None:
    history.goes_on(3)
    history.resets(2, Outcome.INFO)
    history.goes_on(2)


def passed_over(history: Made) -> None:
    history.sends()
    history.gives("m")
    history.goes_on(1, 1)


def passed_over_after_a_reset(history: Made) -> None:
    taken_and_accepted(history)
    history.resets(0)
    history.goes_on(1, 1)


def passed_over_by_a_reset(history: Made) -> None:
    history.sends()
    history.resets(1)
    history.goes_on(1, 1)


def given_to_who_never_heard(history: Made) -> None:
    history.sends()
    history.happens("share group", "g 2")
    history.gives("m")
    history.request("m", outcome=Outcome.INFO)
    history.goes_on(1, 1)


def in_a_transaction(history: Made, outcome: Outcome, *, committed: bool) -> None:
    value = value_of("p", 0, A)
    transaction = history.begin(Transaction(process="p", transactional_id="x", values=[(A, value)]))
    transaction.asked = history.mark() if outcome is Outcome.OK else None
    history.end(transaction, outcome)
    history.note(ShareTaken(process="m", group="g", committed=committed, records=[Seen(A, 0, value)]))


def an_aborted_record(history: Made) -> None:
    in_a_transaction(history, Outcome.FAIL, committed=True)


def an_aborted_record_for_who_wants_all(history: Made) -> None:
    in_a_transaction(history, Outcome.FAIL, committed=False)


def a_committed_record(history: Made) -> None:
    in_a_transaction(history, Outcome.OK, committed=True)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (taken_and_accepted, set()),
        (accepted_and_given_again, {"accepted again"}),
        (rejected_and_given_again, {"accepted again"}),
        (an_accept_that_nobody_answered, set()),
        (an_accept_that_was_refused, set()),
        (an_accept_before_a_reset, set()),
        (an_accept_before_a_reset_that_was_refused, {"accepted again"}),
        (two_have_it, {"double lock"}),
        (one_after_the_other, set()),
        (one_gives_it_back, set()),
        (one_renews_it, {"double lock"}),
        (one_is_cut_off, set()),
        (one_has_lost_its_session, set()),
        (the_broker_has_forgotten, set()),
        (another_ones_record_is_accepted, {"zombie acknowledgement"}),
        (another_ones_record_is_not_accepted, set()),
        (a_record_that_another_one_is_done_with, set()),
        (counted_lower, {"delivery count"}),
        (counted_lower_after_a_crash, set()),
        (counted_lower_though_it_was_given_back, {"delivery count"}),
        (given_back_as_it_was_counted_after_a_crash, set()),
        (given_too_often, {"delivered too often"}),
        (given_as_often_as_may_be, set()),
        (goes_back, {"share start fell"}),
        (goes_back_as_it_was_told, set()),
        (passed_over, {"passed over by a share group"}),
        (passed_over_after_a_reset, {"passed over by a share group"}),
        (passed_over_by_a_reset, set()),
        (given_to_who_never_heard, set()),
        (an_aborted_record, {"aborted share"}),
        (an_aborted_record_for_who_wants_all, set()),
        (a_committed_record, set()),
    ],
    ids=lambda case: case.__name__ if callable(case) else "",
)
def test_a_history_made_for_a_check(make: Callable[[Made], None], names: set[str]) -> None:
    """Exactly the anomalies that were put into it are found."""
    history = Made()
    make(history)
    anomaly_names = {anomaly.name for anomaly in check(history, {})}
    assert anomaly_names == names
