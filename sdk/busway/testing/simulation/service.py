"""The simulated service: finding it, and making it again for each process.

Here: `Service`.
Not here: running it (`run`).

A simulated process imports the service's modules afresh, like a real one. Module variables of instances are separate
and end with the process.
"""

import contextlib
import functools
import importlib
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from busway.app.application import Application
from busway.errors import BuswayError

_PYTHON: Final = tuple(
    os.path.join(os.path.realpath(sysconfig.get_path(name)), "")
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_OURS: Final = frozenset(
    {"busway", "busway_protocol", "busway_bus", "busway_registry", "busway_connect", "busway_spark", "busway_console"}
)

Target = str | Application | Callable[[], Application]
"""`module:app`, an app bound in its module, or a factory."""


class NoService(BuswayError):
    """The target cannot be simulated; the text says what can."""


class Service:
    """A service that can be made many times.

    Attributes:
        app: an instance that never runs; gives its topics to senders and readers.

    Raises:
        NoService: the target is none.
    """

    def __init__(
        self,
        target: Target,
        environment: Mapping[str, str] | None = None,
        prepare: Callable[..., None] | None = None,
    ) -> None:
        self._prepare = prepare
        self._environment = dict(environment or {})
        self._module = ""
        if isinstance(target, Application):
            target = _place_of(target)
        if isinstance(target, str):
            self._module, colon, self._attribute = target.partition(":")
            if not colon or not self._module or not self._attribute:
                raise NoService(f"{target}: give MODULE:APP, such as shop.service:app")
            origin = getattr(importlib.import_module(self._module), self._attribute, None)
            self.name: str = target
        else:
            self._make = origin = target
            self.name = getattr(target, "__qualname__", repr(target))
        self.app: Application = _app_of(origin, self.name)

    def make(self, instance: str) -> Application:
        app = self._made(instance)
        if self._prepare is not None:
            self._prepare(app)
        return app

    def _made(self, instance: str) -> Application:
        with _environment({name: text.format(instance=instance) for name, text in self._environment.items()}):
            if not self._module:
                return self._make()
            with _modules_of_its_own(self._module.partition(".")[0]):
                return _app_of(getattr(importlib.import_module(self._module), self._attribute), self.name)


def _app_of(target: object, name: str) -> Application:
    if callable(target) and not isinstance(target, Application):
        target = target()
    if not isinstance(target, Application):
        raise NoService(
            f"{name} is {type(target).__name__}; give an App, or a function without arguments that makes one"
        )
    return target


def _place_of(app: Application) -> str:
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and _is_users(module):
            for attribute, value in vars(module).items():
                if value is app:
                    return f"{module.__name__}:{attribute}"
    raise NoService(
        f"app {app.name} is no name of a module, so no second instance of it can be made; give a function that makes it"
    )


def _is_users(module: ModuleType, package: str | None = None) -> bool:
    """Return whether a module is of `package`, or of neither Python, installed packages nor Busway."""
    top = module.__name__.partition(".")[0]
    return top == package or (top not in _OURS and _is_elsewhere(getattr(module, "__file__", None)))


@functools.cache
def _is_elsewhere(file: str | None) -> bool:
    return bool(file) and not os.path.realpath(str(file)).startswith(_PYTHON)


@contextlib.contextmanager
def _modules_of_its_own(package: str) -> Iterator[None]:
    """Import the user's modules afresh within; restore the old ones after."""
    modules = {
        name: module for name, module in list(sys.modules.items()) if module is not None and _is_users(module, package)
    }
    for name in modules:
        del sys.modules[name]
    try:
        yield
    finally:
        for name, module in list(sys.modules.items()):
            if module is not None and name not in modules and _is_users(module, package):
                del sys.modules[name]
        sys.modules.update(modules)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def here_first() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def attribute_of(target: str) -> Any:
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise NoService(f"{target}: give MODULE:NAME, such as shop.simulation:simulation")
    module = importlib.import_module(module_name)
    if not hasattr(module, name):
        raise NoService(f"{module_name} has no {name}")
    return getattr(module, name)
