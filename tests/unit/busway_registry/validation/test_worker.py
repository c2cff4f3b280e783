"""The loop of a validating process: every outcome is an answer."""

import io
import pickle
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from busway_registry.domain.avro.recent import RecentlyParsed
from busway_registry.domain.compatibility.breaches import TooMuchWork
from busway_registry.domain.errors import RegistryError
from busway_registry.validation import worker
from busway_registry.validation.worker import LENGTH, Answer, peak_memory_bytes, serve


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """Leave no alarm behind in the process that runs the tests."""
    yield
    signal.alarm(0)


def answers_to(*tasks: str) -> list[Answer]:
    """Serve requests; return the answers until the worker ends."""
    questions = io.BytesIO()
    for task in tasks:
        data = pickle.dumps((task, {}))
        questions.write(LENGTH.pack(len(data)) + data)
    questions.seek(0)
    written = io.BytesIO()
    serve(questions, written)
    written.seek(0)
    answers = []
    while header := written.read(LENGTH.size):
        answers.append(pickle.loads(written.read(*LENGTH.unpack(header))))
    return answers


def judge(parse: RecentlyParsed, task: str, arguments: dict[str, Any]) -> Any:
    """Stand in for validation: a task names its outcome."""
    if task == "done":
        return ["value", arguments]
    raise {
        "refused": RegistryError(42201, "not a schema"),
        "too much work": TooMuchWork("100 steps"),
        "too much memory": MemoryError(),
        "broken": KeyError("field"),
    }[task]


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace validation by the outcomes' names, in a process that is not near its limit."""
    monkeypatch.setattr(worker, "judge", judge)
    monkeypatch.setattr(worker, "peak_memory_bytes", lambda: 0)


def test_every_outcome_is_answered(outcomes: None) -> None:
    """A refusal has Confluent's code; a defect its traceback, and ends the worker."""
    done, refused, work, broken = answers_to("done", "refused", "too much work", "broken", "done")
    assert done == Answer(kind="done", value=["value", {}])
    assert (refused.kind, refused.code, refused.text, refused.last) == ("refused", 42201, "not a schema", False)
    assert (work.kind, work.text, work.last) == ("too much work", "100 steps", False)
    assert (broken.kind, broken.last) == ("broken", True)
    assert "KeyError: 'field'" in broken.text


def test_a_worker_ends_after_its_limit(outcomes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory at once, or after a request that took the process beyond its peak."""
    assert [answer.last for answer in answers_to("too much memory", "done")] == [True]
    monkeypatch.setattr(worker, "peak_memory_bytes", lambda: 2**30)
    assert [(answer.kind, answer.last) for answer in answers_to("done", "done")] == [("done", True)]


def test_an_alarm_ends_a_request_that_nobody_waits_for(outcomes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set before each request and off after it."""
    set_to: list[int] = []
    monkeypatch.setattr(signal, "alarm", set_to.append)
    answers_to("done", "refused")
    assert set_to == [worker.LONGEST_S, 0, worker.LONGEST_S, 0]


def test_peak_memory() -> None:
    """This process has some, and less than a worker may."""
    assert peak_memory_bytes() > 2**20
