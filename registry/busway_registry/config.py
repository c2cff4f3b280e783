"""The registry's settings.

Here: names, defaults and checks.
Not here: the command line (`busway.cli`, `__main__`).
"""

from dataclasses import dataclass
from typing import Final

from busway.net.listening import is_this_machine
from busway_registry.domain.compatibility.levels import Level

_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


class BadSetting(ValueError):
    """An invalid setting; the text names it and a valid value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """All settings.

    Attributes:
        database: `sqlite:///FILE`, `postgresql://user:password@host:5432/name`, or `memory:`, which ends with the
            process.
        host: beyond this machine only with `insecure`, as the registry has no authentication.
        port: 0 takes a free one.
        compatibility_level: default level (Confluent: `schema.compatibility.level`).
        mutable_mode: modes may be changed (Confluent: `mode.mutability`).
    """

    database: str = "sqlite+aiosqlite:///registry.db"
    host: str = "127.0.0.1"
    port: int = 8081
    compatibility_level: Level = Level.BACKWARD
    mutable_mode: bool = True
    insecure: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise BadSetting(f"port is a number from 0 to 65535, not {self.port}")
        if self.database != "memory:":
            object.__setattr__(self, "database", _with_driver(self.database))
        if not self.insecure and not is_this_machine(self.host):
            raise BadSetting(
                f"host {self.host} is reachable by others and there is no authentication; use 127.0.0.1, or say insecure "
                "(--insecure) if the network is trusted"
            )


def _with_driver(database: str) -> str:
    scheme, colon, rest = database.partition(":")
    driver = _DRIVERS.get(scheme)
    if not colon or driver is None:
        raise BadSetting(
            f"database begins with {scheme[:40]!r}; give sqlite:///FILE, postgresql://user:password@host:5432/name, or memory:"
        )
    return f"{driver}:{rest}"
