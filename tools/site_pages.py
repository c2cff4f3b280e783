"""Pages of the manual's site, as a hook of MkDocs (`mkdocs.yml`).

Here: the tracked Markdown pages and images under their paths in the repository, so that their links are those of the repository.
Not here: navigation and theme (`mkdocs.yml`); the site's checks without MkDocs (`tests/tidy/test_site.py`).
"""

import posixpath
import re
import subprocess
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parent.parent
LEFT_OUT: Final = frozenset({"tests/simulation/planted.md"})
FENCE: Final = re.compile(r"^(```\w+) ([\w.\-/]+)$", re.MULTILINE)
"""A code block with the name of its file."""
LINK: Final = re.compile(r"(?<!!)\[([^\[\]]+)\]\(([^()\s:]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of `docs` by all tracked pages and images; files of the theme stay."""
    kept = [file for file in files if not str(file.abs_src_path).startswith(config.docs_dir)]
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md", "*.png", "*.svg", "docs/*.css"],  # noqa: S607 - git of the PATH, as in every clone
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = sorted(name for name in listed.stdout.split() if name not in LEFT_OUT and (ROOT / name).is_file())
    return Files([*kept, *(_file(name, config) for name in names)])


def _file(name: str, config: MkDocsConfig) -> File:
    file = File(name, str(ROOT), config.site_dir, use_directory_urls=True)
    if name == "docs/README.md":
        file.dest_uri = "contents/index.html"
    elif name.startswith("docs/"):
        file.dest_uri = file.dest_uri.removeprefix("docs/")
    return file


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: Any) -> str:
    """Give code blocks their file's name as a title; a link to a file that is no page becomes its text."""
    folder = posixpath.dirname(page.file.src_uri)

    def plain(match: re.Match[str]) -> str:
        target = match[2].partition("#")[0]
        path = posixpath.normpath(posixpath.join(folder, target)) if target else page.file.src_uri
        is_page = files.get_file_from_path(path) is not None
        return match[0] if is_page or not (ROOT / path).exists() else match[1]

    return LINK.sub(plain, FENCE.sub(r'\1 title="\2"', markdown))
