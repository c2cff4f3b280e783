"""The tables' revision, and migration to the current one.

Here: an empty database gets the current tables; an older one is migrated; a newer one is refused.
Not here: migrations (`migrations`).

Alembic takes longer to import than the registry to start, so it is imported only for a migration.
"""

from typing import Final

from sqlalchemy import delete, insert, inspect, select
from sqlalchemy.engine import Connection

from busway_registry.store.interface import StoreFailed
from busway_registry.store.tables import CONTEXT, IDS, METADATA, REVISIONS, SCHEMAS, SETTINGS, VERSIONS

HEAD: Final = "0003"
"""The last revision in `migrations/versions`; `tables` describes it."""
_BEFORE_ALEMBIC: Final = "0001"


def prepare(connection: Connection) -> bool:
    """Create tables in an empty database; return whether a migration is due. Needs an exclusive transaction.

    Raises:
        StoreFailed: the database has another program's tables.
    """
    names = set(inspect(connection).get_table_names())
    if REVISIONS.name in names:
        return connection.scalar(select(REVISIONS.c.version_num)) != HEAD
    ours = {SCHEMAS.name, VERSIONS.name, SETTINGS.name}
    if ours <= names:
        METADATA.create_all(connection, tables=[REVISIONS])
        _stamp(connection, _BEFORE_ALEMBIC)
        return True
    if taken := names & METADATA.tables.keys():
        raise StoreFailed(
            f"it holds tables of another program ({', '.join(sorted(taken))}); give the registry a database of its own"
        )
    METADATA.create_all(connection)
    connection.execute(insert(IDS).values(context=CONTEXT, last_id=0))
    _stamp(connection, HEAD)
    return False


def migrate(connection: Connection) -> None:
    """Run due migrations in the open transaction, one per process at a time: Alembic's `op` is a global.

    Raises:
        StoreFailed: the database is newer than this code.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "busway_registry:migrations")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError:
        stored = connection.scalar(select(REVISIONS.c.version_num))
        raise StoreFailed(
            f"its tables are of revision {stored}, and this release knows those up to {HEAD}; start the release that made them, "
            "or a later one"
        ) from None


def _stamp(connection: Connection, revision: str) -> None:
    connection.execute(delete(REVISIONS))
    connection.execute(insert(REVISIONS).values(version_num=revision))
