"""The registry's settings.

What lives here: names, defaults and checks. What does not: where they come from (`busway.cli`, `__main__`).
"""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from busway_registry.domain.compatibility.levels import Level


class BadSetting(ValueError):
    """A setting makes no sense; names it and says what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """All settings.

    Attributes:
        database: SQLAlchemy's URL with an asyncio driver, or `memory:` for one that ends with the process.
        host: where to listen; beyond this machine only with `insecure`, as there is no authentication.
        port: 0 takes a free one.
        compatibility_level: where no level is set (Confluent: `schema.compatibility.level`).
        mutable_mode: whether modes may be changed (Confluent: `mode.mutability`).
        insecure: the network is trusted.
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
        if self.database != "memory:" and "+" not in urlsplit(self.database).scheme:
            raise BadSetting(
                f"database begins with {urlsplit(self.database).scheme!r}; it names an asyncio driver too, such as sqlite+aiosqlite:///registry.db or "
                "postgresql+psycopg://user@host/name"
            )
        if not self.insecure and not _is_this_machine(self.host):
            raise BadSetting(
                f"host {self.host} is reachable by others and there is no authentication; use 127.0.0.1, or say insecure "
                "(--insecure) if the network is trusted"
            )


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
