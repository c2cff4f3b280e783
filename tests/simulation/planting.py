"""Putting a bug into the product for a while.

Here: what a bug is, and how it is put in and taken out.
Not here: the bugs (`planted`, `planted_transactions`). A name that is gone is an error: the change then has to follow
the code.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Change = Callable[[Any], Any]
"""The original → what takes its place."""


@dataclass(frozen=True, slots=True)
class Planted:
    """One bug.

    Attributes:
        story: what is wrong with the product while it is in.
        changes: where (`module:name.name`) and what.
        about: seeds of which themes are to find it, "" for those of all.
    """

    name: str
    story: str
    changes: tuple[tuple[str, Change], ...]
    about: str = ""


class Moved(LookupError):
    """What a bug was planted in is not there any more."""


@contextlib.contextmanager
def planted(bug: Planted | None) -> Iterator[None]:
    """Have the bug in the product for a while; None is none.

    Raises:
        Moved: a name is gone.
    """
    undo: list[tuple[Any, str, Any]] = []
    try:
        for where, change in bug.changes if bug is not None else ():
            owner, name = _place(where)
            original = vars(owner)[name]
            undo.append((owner, name, original))
            setattr(owner, name, change(original))
        yield
    finally:
        for owner, name, original in reversed(undo):
            setattr(owner, name, original)


def _place(where: str) -> tuple[Any, str]:
    module, _, path = where.partition(":")
    *parents, name = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for parent in parents:
            owner = getattr(owner, parent)
        vars(owner)[name]
    except (ImportError, AttributeError, KeyError) as problem:
        raise Moved(f"{where} is not there any more ({problem!r}): plant the bug where its code is now") from None
    return owner, name
