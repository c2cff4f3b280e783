"""Optional dependencies.

Not here: versions (pyproject.toml).
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

from busway.errors import BuswayError

_HTTP: Final = ("starlette", "uvicorn")
_DATABASE: Final = ("aiosqlite", "sqlalchemy")
_CONNECT: Final = ("prometheus_client", *_HTTP, "watchfiles", *_DATABASE, "psycopg", "regex")
EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "registry": (*_DATABASE, "alembic", "prometheus_client", *_HTTP),
    "metrics": ("prometheus_client", *_HTTP),
    "web": ("prometheus_client", *_HTTP, "watchfiles"),
    "sql": _DATABASE,
    "otel": ("opentelemetry",),
    "postgres": ("psycopg",),
    "simulation": (*_DATABASE, "alembic", "prometheus_client", *_HTTP, "time_machine"),
    "connect": _CONNECT,
    "demo": (*_DATABASE, "alembic", "prometheus_client", *_HTTP, "watchfiles", "h3"),
    "examples": ("alembic", *_CONNECT, "h3", "numpy", "pyarrow"),
    "spark": ("numpy", "pandas", "prometheus_client", "google.protobuf", "pyarrow", "pyspark"),
}
"""Required packages of each extra by import name. The bus has none: uvloop only makes it faster."""


class MissingExtra(BuswayError, ImportError):
    """Packages that are not installed. The text names the extra and the install command."""


def need(extra: str, what: str) -> None:
    """Require an extra of `EXTRAS` for `what`, the subject of the message; raise `MissingExtra`."""
    if missing := list(_missing(extra)):
        are = "is" if len(missing) == 1 else "are"
        raise MissingExtra(
            f"{what} needs the {extra} extra: pip install 'busway[{extra}]' ({', '.join(missing)} {are} not installed)"
        )


def _missing(extra: str) -> Iterator[str]:
    for name in EXTRAS[extra]:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):  # its parent package is missing, or the import is blocked
            spec = None
        if spec is None:
            yield name
