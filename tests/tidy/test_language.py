"""The language of the code: docs/STYLE.md, as far as a machine can check it."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bus", "sdk", "registry", "services", "spark", "benchmarks", "examples", "tests", "tools")

MARKERS = re.compile(
    r"\b(?:whoever|anew|nobody|somebody|pictures?|told|(?:is|are|was|were) to (?:have|be))\b|\bLet \w+(?: \w+){0,4} be\b",
    re.IGNORECASE,
)
"""Phrases of docstrings and comments that docs/STYLE.md replaces."""

REPLACEMENTS = {
    "found": "what was found: partition, member, version, offset",
    "one": "what it is: partition, member, record, name",
    "those": "what they are, in the plural",
    "mine": "own_partitions, own_member",
    "some": "has_records, batch",
    "thing": "the noun of the domain",
    "whoever": "caller, client, peer",
    "picture": "image",
    "told": "notified, reported",
}
"""Names that say nothing about a value, each with what to write instead."""


def modules(package: str) -> Iterator[tuple[Path, ast.Module, str]]:
    """Parse every tracked module of a package."""
    listed = subprocess.run(
        ["git", "ls-files", f"{package}/**.py", f"{package}/*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in sorted(set(listed.stdout.split())):
        if (path := ROOT / name).is_file():
            text = path.read_text()
            yield path, ast.parse(text), text


def prose(tree: ast.Module, text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module, those of attributes included, and its comments, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for number, line in enumerate(text.splitlines(), 1):
        if (at := line.find("# ")) >= 0 and line.count('"', 0, at) % 2 == 0:
            yield number, line[at:]


def bindings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the names that a module binds: variables, parameters, attributes, aliases, functions and classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


@pytest.mark.parametrize("package", PACKAGES)
def test_no_old_phrases(package: str) -> None:
    """Docstrings and comments have none of the phrases that docs/STYLE.md replaces."""
    hits = [
        f"{path.relative_to(ROOT)}:{line}: {hit[0]}"
        for path, tree, text in modules(package)
        for line, passage in prose(tree, text)
        for hit in MARKERS.finditer(passage)
    ]
    assert not hits, "docs/STYLE.md says what to write instead:\n" + "\n".join(hits[:20])


@pytest.mark.parametrize("package", PACKAGES)
def test_no_names_that_say_nothing(package: str) -> None:
    """No package binds a name that says nothing about its value."""
    hits = meaningless(package)
    assert not hits, "docs/STYLE.md says what to write instead:\n" + "\n".join(hits[:20])


def meaningless(folder: str) -> list[str]:
    """List the bindings of a replaced name."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {name} -> {REPLACEMENTS[name]}"
        for path, tree, _ in modules(folder)
        for line, name in bindings(tree)
        if name in REPLACEMENTS
    ]
