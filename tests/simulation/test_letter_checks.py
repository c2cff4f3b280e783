"""Each check of dead letters finds the history that was made for it, and leaves alone the one beside it that is right."""

from collections.abc import Callable

import pytest

from tests.simulation.checks import check
from tests.simulation.history import Outcome, value_of
from tests.simulation.made_shares import A, Made
from tests.simulation.share_checks import ACCEPT, REJECT, RELEASE
from tests.simulation.share_history import ShareLetters


def given_up(
    history: Made, kind: int = REJECT, problem: str = "", outcome: Outcome = Outcome.OK, count: int = 1
) -> None:
    history.happens("share group", "g 2")
    history.happens("dead letters", "g")
    history.sends()
    history.gives("m", count)
    history.says("m", kind, problem, outcome)


def rejected_with_a_letter(history: Made) -> None:
    given_up(history)
    history.goes_on(1)
    history.buries(0)
    history.goes_on(1, 1)
    history.buries(0, 0)


def rejected_without_a_letter(history: Made) -> None:
    given_up(history)
    history.goes_on(0, 1)
    history.buries()


def rejected_where_there_are_no_letters(history: Made) -> None:
    history.sends()
    history.gives("m")
    history.says("m", REJECT)
    history.goes_on(1, 1)


def archived_before_its_letter(history: Made) -> None:
    given_up(history)
    history.goes_on(1)
    history.buries()
    history.goes_on(1, 1)
    history.buries(0)


def looked_for_before_it_was_archived(history: Made) -> None:
    given_up(history)
    early = history.begin(ShareLetters(process="k", group="g"))
    history.goes_on(1)
    history.end(early)
    history.buries(0)


def looked_for_while_it_waits_for_its_letter(history: Made) -> None:
    given_up(history)
    history.goes_on(0)
    history.buries()


def looked_for_without_an_answer(history: Made) -> None:
    given_up(history)
    history.goes_on(1)
    history.end(history.begin(ShareLetters(process="k", group="g")), Outcome.INFO)
    history.buries(0)


def accepted_maybe_and_without_a_letter(history: Made) -> None:
    given_up(history, ACCEPT, outcome=Outcome.INFO)
    history.goes_on(1, 1)
    history.request("m", outcome=Outcome.INFO)
    history.buries()


def accepted_too_late_and_without_a_letter(history: Made) -> None:
    given_up(history, ACCEPT, "INVALID_RECORD_STATE", count=2)
    history.goes_on(1, 1)
    history.buries()


def given_too_often_without_a_letter(history: Made) -> None:
    given_up(history, RELEASE, count=2)
    history.goes_on(1, 1)
    history.buries()


def given_too_often_with_a_letter(history: Made) -> None:
    given_up(history, RELEASE, count=2)
    history.goes_on(1, 1)
    history.buries(0, count=2)


def passed_over_by_a_reset_without_a_letter(history: Made) -> None:
    given_up(history)
    history.resets(1)
    history.goes_on(1, 1)
    history.buries()


def a_letter_of_what_was_given_back(history: Made) -> None:
    given_up(history, RELEASE)
    history.buries(0)


def a_letter_of_what_was_accepted(history: Made) -> None:
    given_up(history, ACCEPT)
    history.buries(0)


def a_letter_of_what_was_rejected_in_vain(history: Made) -> None:
    given_up(history, REJECT, "INVALID_RECORD_STATE")
    history.buries(0)


def a_letter_of_what_was_rejected_maybe(history: Made) -> None:
    given_up(history, REJECT, outcome=Outcome.INFO)
    history.buries(0)


def a_letter_of_what_may_have_been_given_once_more(history: Made) -> None:
    given_up(history, RELEASE)
    history.request("m", outcome=Outcome.INFO)
    history.buries(0, count=2)


def a_letter_with_another_value(history: Made) -> None:
    given_up(history)
    history.buries(0, value=value_of("p", 1, A))


def a_letter_with_its_value(history: Made) -> None:
    given_up(history)
    history.buries(0, value=value_of("p", 0, A))


def a_letter_that_counts_too_far(history: Made) -> None:
    given_up(history)
    history.buries(0, count=3)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (rejected_with_a_letter, set()),
        (rejected_without_a_letter, {"dead letter missing"}),
        (rejected_where_there_are_no_letters, set()),
        (archived_before_its_letter, {"archived before its letter"}),
        (looked_for_before_it_was_archived, set()),
        (looked_for_while_it_waits_for_its_letter, set()),
        (looked_for_without_an_answer, set()),
        (accepted_maybe_and_without_a_letter, set()),
        (accepted_too_late_and_without_a_letter, {"dead letter missing"}),
        (given_too_often_without_a_letter, {"dead letter missing"}),
        (given_too_often_with_a_letter, set()),
        (passed_over_by_a_reset_without_a_letter, set()),
        (a_letter_of_what_was_given_back, {"dead letter of a good record"}),
        (a_letter_of_what_was_accepted, {"dead letter of a good record"}),
        (a_letter_of_what_was_rejected_in_vain, {"dead letter of a good record"}),
        (a_letter_of_what_was_rejected_maybe, set()),
        (a_letter_of_what_may_have_been_given_once_more, set()),
        (a_letter_with_another_value, {"dead letter of another record"}),
        (a_letter_with_its_value, set()),
        (a_letter_that_counts_too_far, {"dead letter counted wrongly"}),
    ],
    ids=lambda case: case.__name__ if callable(case) else "",
)
def test_a_history_made_for_a_check(make: Callable[[Made], None], names: set[str]) -> None:
    """Exactly the anomalies that were put into it are found."""
    history = Made()
    make(history)
    anomaly_names = {anomaly.name for anomaly in check(history, {})}
    assert anomaly_names == names
