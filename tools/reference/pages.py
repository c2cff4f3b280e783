"""Which reference pages there are, and whether they are fresh."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tools.reference import api, commands, contents, endpoints, figures, options, settings

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = "docs/reference"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    f"{FOLDER}/broker-settings.md": settings.broker,
    f"{FOLDER}/topic-settings.md": settings.topics,
    f"{FOLDER}/group-settings.md": settings.groups,
    f"{FOLDER}/registry-settings.md": options.registry,
    f"{FOLDER}/connect-settings.md": options.connect,
    f"{FOLDER}/client-options.md": options.clients,
    f"{FOLDER}/commands.md": commands.page,
    f"{FOLDER}/rest.md": endpoints.page,
    f"{FOLDER}/service-metrics.md": figures.page,
    **{f"{FOLDER}/api/{name}.md": partial(api.page, name) for name in api.GROUPS},
    contents.PAGE: contents.page,
}
"""The contents come last: their titles are those of the other pages."""


def is_fresh(name: str) -> bool:
    """Return whether a page is what the code says."""
    return (ROOT / name).is_file() and (ROOT / name).read_text() == PAGES[name]()
