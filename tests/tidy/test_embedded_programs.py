"""Programs that tests and benchmarks keep in strings import names that exist.

Neither mypy nor a rename sees inside of a string. A test of the hostile stage failed because its class had been renamed.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.test_house import ROOT, tracked

FOLDERS = ("tests", "benchmarks", "examples", "tools")
IMPORT = re.compile(r"^\s*from (busway\w*(?:\.\w+)*|tests(?:\.\w+)*) import (\([^)]*\)|[^\n;#]+)", re.MULTILINE)
ROOTS = {
    "busway": "sdk",
    "busway_protocol": "sdk",
    "busway_bus": "bus",
    "busway_registry": "registry",
    "busway_spark": "spark",
    "tests": ".",
}


def embedded_imports(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, module and name of the imports in a module's strings."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, names in IMPORT.findall(node.value):
                for name in names.strip("() \n").split(","):
                    if name.strip():
                        yield node.lineno, module, name.split(" as ")[0].strip()


@cache
def names_of(module: str) -> frozenset[str]:
    """Return the names that a module binds or has as submodules, without running it; empty if there is no module."""
    base = ROOT / ROOTS.get(module.split(".", maxsplit=1)[0], "services") / module.replace(".", "/")
    source = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    names = {entry.stem for entry in base.iterdir()} if base.is_dir() else set()
    if source.is_file():
        for node in ast.walk(ast.parse(source.read_text())):
            match node:
                case ast.Name(id=name, ctx=ast.Store()):
                    names.add(name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    names.add(name)
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    names.update((alias.asname or alias.name).split(".")[0] for alias in aliases)
                case ast.Constant(value=str(name)):
                    names.add(name)  # a name of `__all__` that is loaded when it is asked for
    return frozenset(names)


def test_embedded_programs_import_names_that_exist() -> None:
    """A rename is not done before the programs in strings have the new name."""
    missing = [
        f"{path.relative_to(ROOT)}:{line}: from {module} import {name}"
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in FOLDERS
        for line, module, name in embedded_imports(path)
        if name != "*" and name not in names_of(module)
    ]
    assert not missing


def test_a_missing_name_is_seen() -> None:
    """The check reads the right files."""
    assert "SchemaValidator" in names_of("busway_registry.validation.validator")
    assert "Judge" not in names_of("busway_registry.validation.validator")
