"""The Python of the manual: each block of the README, a guide, tutorial or migration page is run.

A block with a file's name is a module of that name; a later block of that name replaces it. Blocks without a name share one module. The functions of a
block that are called `test_…` are run at once, with the modules as they are at that place of the page, each with the fixtures that it names.

Not here: pages with tests of their own (`test_transactions`, `test_security` …), commands and code spans (`test_spans`).
"""

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tutorial", "guides", "migration", "explanation")
BLOCK = re.compile(r"^```python(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMELESS = "page.py"
"""The module of blocks without a name."""


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the blocks of a page: the file's name and the text."""
    return [(name or NAMELESS, text) for name, text in BLOCK.findall((ROOT / page).read_text())]


PAGES = ["README.md"] + [
    name
    for folder in FOLDERS
    for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    if blocks(name := str(page.relative_to(ROOT)))
]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
async def test_the_code_of_a_page_runs(
    page: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the page, with at least one test."""
    monkeypatch.chdir(tmp_path)
    ours: dict[str, ModuleType] = {}
    count = 0
    for number, (name, text) in enumerate(blocks(page)):
        stem = Path(name).stem
        assert stem in ours or stem not in sys.modules, f"{stem} is a module of another package; rename {name}"
        module = ours.get(stem) if name == NAMELESS else None
        if module is None:
            module = ours[stem] = ModuleType(stem)
            monkeypatch.setitem(sys.modules, stem, module)
        module.__file__ = str(tmp_path / f"{number}-{name}")
        Path(module.__file__).write_text(text)
        before = dict(vars(module))
        exec(compile(text, module.__file__, "exec"), module.__dict__)
        for test, function in list(vars(module).items()):
            if not test.startswith("test_") or not inspect.isfunction(function) or before.get(test) is function:
                continue
            fixtures = inspect.signature(function).parameters
            result = function(**{fixture: request.getfixturevalue(fixture) for fixture in fixtures})
            if inspect.isawaitable(result):
                await result
            count += 1
    assert count, f"{page} has code and no test of it"
