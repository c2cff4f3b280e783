"""Unit tests lie where their subject does: `tests/unit/busway_bus/log/` tests `busway_bus.log`.

What is left of pure modules without unit tests is a number for each package, which may only fall.
"""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tests/unit"
SOURCES = {"busway_bus": "bus", "busway": "sdk", "busway_protocol": "sdk", "busway_registry": "registry"}
SOURCES |= {"busway_connect": "services", "busway_spark": "spark"}

IO = frozenset(
    {"asyncio", "socket", "subprocess", "threading", "shutil", "tempfile", "ssl", "sqlalchemy", "pyspark", "psycopg"}
)
"""A module that imports one of these, or has a coroutine, is not pure."""
ELSEWHERE = {
    "bus/busway_bus/handlers": "answered over the wire in tests/integration/broker",
    "sdk/busway_protocol/messages": "compared with Kafka's own definitions in tests/conformance",
    "spark/busway_spark/columns.py": "needs pyarrow, which only tests/spark has",
}
"""Folders whose modules are tested elsewhere."""
SMALL = 60
"""Lines up to which a pure module needs no test of its own."""
UNTESTED_LEFT = {
    "busway_bus": 3,
    "busway": 0,
    "busway_protocol": 0,
    "busway_registry": 0,
    "busway_connect": 0,
    "busway_spark": 0,
}


def tracked(folder: str) -> list[Path]:
    """List the tracked Python files below a folder, relative to the root."""
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in listed.stdout.split() if name.endswith(".py") and (ROOT / name).is_file()]


def imports(path: Path) -> set[str]:
    """Name the modules that a file imports, and each name taken from them with its module before it."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def is_pure(path: Path) -> bool:
    """Whether a module has behaviour, but neither coroutines nor IO."""
    tree = ast.parse((ROOT / path).read_text())
    if not has_behaviour(tree) or any(isinstance(node, ast.AsyncFunctionDef) for node in ast.walk(tree)):
        return False
    return not {name.split(".")[0] for name in imports(path)} & IO


def has_behaviour(tree: ast.Module) -> bool:
    """Whether a module has functions, besides those that protocols declare."""
    functions = {node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    protocols = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    ]
    return bool(
        functions - {node for protocol in protocols for node in protocol.body if isinstance(node, ast.FunctionDef)}
    )


def test_a_unit_test_lies_in_the_folder_of_its_subject() -> None:
    """The folders of tests/unit are those of the packages."""
    misplaced = []
    for path in tracked("tests/unit"):
        folder = path.parent.relative_to("tests/unit")
        if folder.parts[0] not in SOURCES:
            continue
        package = ".".join(folder.parts)
        if not (ROOT / SOURCES[folder.parts[0]] / folder).is_dir():
            misplaced.append(f"{path}: there is no package {package}")
    assert not misplaced, "\n".join(misplaced)


@pytest.mark.parametrize("package", SOURCES)
def test_pure_modules_without_unit_tests_only_become_fewer(package: str) -> None:
    """A pure module has `test_<module>.py` in its mirrored folder, or a unit test of its package imports it."""
    tests = tracked(f"tests/unit/{package}")
    imported = set().union(*(imports(path) for path in tests))
    untested = []
    for path in tracked(f"{SOURCES[package]}/{package}"):
        module = path.relative_to(SOURCES[package])
        if path.name == "__init__.py" or any(path.is_relative_to(folder) for folder in ELSEWHERE):
            continue
        if not is_pure(path) or len((ROOT / path).read_text().splitlines()) <= SMALL:
            continue
        mirrored = Path("tests/unit") / module.parent / f"test_{module.name}"
        if mirrored not in tests and ".".join(module.with_suffix("").parts) not in imported:
            untested.append(str(path))
    assert len(untested) <= UNTESTED_LEFT[package], "\n".join(
        [f"{len(untested)} where {UNTESTED_LEFT[package]} may be left:", *untested]
    )
