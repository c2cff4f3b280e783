"""Which reference pages there are, and whether they are fresh."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tools.reference import api, commands, contents, endpoints, figures, options, settings

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = "docs/reference"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    contents.PAGE: contents.page,
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
}


def stale() -> list[str]:
    """Return the pages that differ from what the code says."""
    return [name for name, page in PAGES.items() if not (ROOT / name).is_file() or (ROOT / name).read_text() != page()]
