"""What `App.queue` refuses at once, and how it says so."""

from typing import Any

import pytest

from busway import App, BadDeclaration, Reject, Retry


def service() -> tuple[App, Any]:
    """An app with a topic."""
    app = App("shop")
    return app, app.topic("jobs", value=bytes, format="raw")


async def handle(value: bytes) -> None:
    """A handler."""


def test_a_queue_has_a_group_of_its_own_and_gives_up_on_rejections() -> None:
    """By default the app's with a suffix; a topic may be given by name."""
    app, _ = service()
    app.queue("jobs")(handle)
    (route,) = app.queue_routes
    assert (route.group, [topic.name for topic in route.topics], app.routes) == ("shop.queue", ["jobs"], [])
    assert Reject in route.retry.give_up_on


@pytest.mark.parametrize(
    ("topics", "options", "text"),
    [
        (("mails",), {}, "queues 'mails', which is no topic of app shop"),
        ((), {}, "names no topic"),
        (("jobs",), {"group": "shop"}, "group is a name that is not empty and not 'shop', the app's own"),
        (("jobs",), {"group": ""}, "group is a name that is not empty"),
        (("jobs",), {"group": "a b"}, "which is no name for a topic"),
        (("jobs",), {"concurrency": 0}, "concurrency is 1 to 1000"),
        (("jobs",), {"retry": 3}, "retry is a Retry"),
        (("jobs",), {"timeout_s": -1}, "timeout_s is above 0"),
    ],
)
def test_what_cannot_work_is_refused(topics: Any, options: Any, text: str) -> None:
    """With the handler's name."""
    app, _ = service()
    with pytest.raises(BadDeclaration) as refusal:
        app.queue(*topics, **options)(handle)
    assert text in str(refusal.value)
    assert app.queue_routes == []


def test_two_handlers_cannot_share_a_groups_topic() -> None:
    """Each would get some of the records, at random."""
    app, jobs = service()
    app.queue(jobs, group="workers")(handle)
    with pytest.raises(BadDeclaration, match="takes jobs of share group workers, and so does"):
        app.queue(jobs, group="workers", retry=Retry(attempts=1))(handle)
    app.queue(jobs, group="auditors")(handle)


def test_a_bare_decorator_and_other_things_are_named() -> None:
    """`@app.queue` without a topic is a common mistake."""
    app, _ = service()
    with pytest.raises(BadDeclaration, match="stands under a bare queue"):
        app.queue(handle)  # type: ignore[arg-type]
    with pytest.raises(BadDeclaration, match="not 3"):
        app.queue(3)  # type: ignore[arg-type]
