"""The Markdown pages of the repository: language, links, decisions.

Here: phrases that docs/STYLE.md replaces, relative links with their anchors, the index of decisions.
Not here: the code of the pages (`tests/docs`), docstrings and comments (`test_language`).
"""

import re
import subprocess
from pathlib import Path

import pytest
from tests.tidy.test_language import MARKERS, ROOT

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(([^()\s]+)\)")
RIDDLES = re.compile(
    r"\b(?:everybody|nowhere|put aside|are handed out|is handed out|what it is not|are told|gives? up what|the day you"
    r"|comes? to be|goes? aside|who (?:reads|wants|switches|adds|comes))\b",
    re.IGNORECASE,
)
"""More phrases of earlier pages: personification and inverted sentences."""
QUOTING = {"docs/STYLE.md"}
"""Pages that quote old text to show its replacement."""
DECISIONS = ROOT / "docs" / "decisions"


def pages() -> list[str]:
    """List the tracked Markdown pages, relative to the root."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if (ROOT / name).is_file()]


def without(pattern: re.Pattern[str], text: str) -> str:
    """Blank out what matches; line numbers stay."""
    return pattern.sub(lambda match: "\n" * match[0].count("\n"), text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    made: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+)$", without(FENCED, page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = made.get(slug, -1) + 1
        made[slug] = number
        if number:
            made[f"{slug}-{number}"] = 0
    return set(made)


@pytest.mark.parametrize("page", [page for page in pages() if page not in QUOTING])
def test_a_page_has_no_old_phrases(page: str) -> None:
    """Its text, code blocks and code spans aside, has none of the phrases that docs/STYLE.md replaces."""
    text = without(SPAN, without(FENCED, (ROOT / page).read_text()))
    hits = [
        f"{page}:{number}: {hit[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern in (MARKERS, RIDDLES)
        for hit in pattern.finditer(line)
    ]
    assert not hits, "docs/STYLE.md says what to write instead:\n" + "\n".join(hits)


@pytest.mark.parametrize("page", pages())
def test_relative_links_resolve(page: str) -> None:
    """Each names a file that exists, and each anchor a heading of it."""
    here = ROOT / page
    broken = []
    for target in LINK.findall(without(SPAN, without(FENCED, here.read_text()))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (here.parent / name).resolve() if name else here
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken, f"{page} has links to nothing: {broken}"


def test_the_changelog_has_each_part_once() -> None:
    """A merge of its lines (`merge=union`) keeps text that one side has rewritten."""
    headings = re.findall(r"^#+ .+$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    bullets = re.findall(r"^- .+$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    twice = sorted({line for lines in (headings, bullets) for line in lines if lines.count(line) > 1})
    assert not twice, f"merged twice: {twice}"


BUILT = {"build/stages/"}
"""Folders that a run creates."""
FOREIGN = {"LogicalReplicationConnection"}
"""Classes of other products that a page names."""
COMPARING = "docs/migration/"
"""Pages that name the classes of other products."""


def test_modules_and_classes_of_the_docs_exist() -> None:
    """Code spans with a path name a file or folder, those with a class name a class of the sources."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    sources = {
        word
        for name in listed
        if name.endswith((".py", ".java", ".go")) and (ROOT / name).is_file()
        for word in re.findall(r"\b[A-Z]\w+", (ROOT / name).read_text())
    }
    missing = []
    for page in pages():
        if not page.startswith("docs/") and "/" in page:
            continue
        for span in re.findall(r"`([^`\n]+)`", without(FENCED, (ROOT / page).read_text())):
            if re.fullmatch(r"[a-z_]+(?:/[a-z_]+)+(?:\.py)?/?", span) and span not in BUILT:
                path = span.removesuffix("/").removesuffix(".py")
                exists = any(f"/{path}/" in f"/{name}" or f"/{name}".endswith(f"/{path}.py") for name in listed)
            elif re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][a-z]*)+", span) and page != "CHANGELOG.md":
                exists = span in sources | FOREIGN or page.startswith(COMPARING)
            else:
                continue
            if not exists:
                missing.append(f"{page}: {span}")
    assert not missing, "rename them in the pages:\n" + "\n".join(missing)


def test_every_decision_is_in_the_index() -> None:
    """docs/decisions/README.md links each page with the title of that page."""
    index = (DECISIONS / "README.md").read_text()
    rows = dict(re.findall(r"^\| \d+ \| \[(.+)\]\((\d{4}-[a-z-]+\.md)\) \|$", index, re.MULTILINE))
    listed = {name: title for title, name in rows.items()}
    titles = {
        page.name: page.read_text().splitlines()[0].removeprefix("# ").split(". ", 1)[1]
        for page in DECISIONS.glob("[0-9]*.md")
    }
    assert listed == titles


def test_an_anchor_is_made_as_by_github() -> None:
    """Punctuation is dropped, each space is a hyphen."""
    assert "where-busway-loses-and-why" in anchors(ROOT / "docs" / "BENCHMARKS.md")
    assert "recovery-after-kill--9" in anchors(ROOT / "docs" / "BENCHMARKS.md")
