"""A simulated service, made again for each process from fresh modules."""

import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from busway.app.application import Application
from busway.testable_app import App
from busway.testing.simulation.service import NoService, Service, attribute_of, here_first

MODULE = """
import os
from busway import App
from simulated_shop import state
app = App(os.environ.get("SHOP", "shop"))
number = 5
def make() -> App:
    return App("made")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a service and with state in a module variable."""
    package = tmp_path / "simulated_shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "state.py").write_text("seen = []\n")
    (package / "service.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("simulated_shop")]:
        del sys.modules[name]


def test_each_process_has_its_own_modules(shop: Path) -> None:
    """Module variables are not shared; those of the test's process are restored."""
    service = Service("simulated_shop.service:app")
    before = sys.modules["simulated_shop.state"]
    first, second = service.make("a"), service.make("b")
    assert len({id(service.app), id(first), id(second)}) == 3
    assert {app.name for app in (service.app, first, second)} == {"shop"}
    assert sys.modules["simulated_shop.state"] is before


def test_an_instance_has_its_environment(shop: Path) -> None:
    """`{instance}` is its name; the test's own environment comes back."""
    service = Service("simulated_shop.service:app", {"SHOP": "shop-{instance}"})
    assert service.make("west").name == "shop-west"
    assert "SHOP" not in os.environ


def test_an_app_is_found_by_its_module(shop: Path) -> None:
    """Under the name that it has there."""
    app = attribute_of("simulated_shop.service:app")
    service = Service(app)
    assert service.name == "simulated_shop.service:app"
    assert service.make("a") is not app


def test_a_factory_and_its_preparation() -> None:
    """`prepare` is called with each app that will run, not with the one that only shows its topics."""
    prepared: list[Application] = []
    service = Service(lambda: App("made"), prepare=prepared.append)
    app = service.make("a")
    assert prepared == [app]
    assert service.app is not app


def test_targets_that_cannot_be_made(shop: Path) -> None:
    """Each is refused with what to give instead."""
    local = App("local")
    with pytest.raises(NoService, match="app local is no name of a module"):
        Service(local)
    with pytest.raises(NoService, match=r"give MODULE:APP, such as shop\.service:app"):
        Service("simulated_shop.service")
    with pytest.raises(NoService, match=r"simulated_shop\.service:number is int; give an App"):
        Service("simulated_shop.service:number")
    assert Service("simulated_shop.service:make").app.name == "made"


def test_attributes_by_name(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is named."""
    assert attribute_of("simulated_shop.service:number") == 5
    with pytest.raises(NoService, match=r"simulated_shop\.service has no missing"):
        attribute_of("simulated_shop.service:missing")
    with pytest.raises(NoService, match="give MODULE:NAME"):
        attribute_of("simulated_shop.service:")
    monkeypatch.chdir(shop)
    monkeypatch.setattr(sys, "path", list(sys.path))
    here_first()
    here_first()
    assert sys.path.count(str(shop)) >= 1
