"""The contract of `Store`: the one that forgets, the one on SQLite and the one on PostgreSQL behave alike."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator

import pytest

from busway_registry.domain.schemas import Artifact, Reference
from busway_registry.store import engines
from busway_registry.store.interface import GLOBAL, Deleted, IdTaken, NoMoreIds, Part, Store, Version
from busway_registry.store.memory import MemoryStore
from busway_registry.store.sql import SqlStore

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)


def database_of(request, folder) -> str:
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{folder / 'registry.db'}"
    url: str = request.getfixturevalue("postgres").url
    return url


@pytest.fixture(params=["sqlite", POSTGRES])
def database(request, tmp_path) -> str:
    """The URL of an empty database of each kind."""
    return database_of(request, tmp_path)


@pytest.fixture(params=["memory", "sqlite", POSTGRES])
async def store(request, tmp_path) -> AsyncIterator[Store]:
    """Each implementation in turn, open and empty."""
    opened: Store = MemoryStore() if request.param == "memory" else SqlStore(database_of(request, tmp_path))
    await opened.open()
    yield opened
    await opened.close()


def artifact(text: str, *references: Reference, **more) -> Artifact:
    return Artifact(
        text=text,
        schema_type="AVRO",
        references=references,
        metadata=more.get("metadata"),
        rule_set=more.get("rule_set"),
    )


def use(subject: str, version: int, schema_id: int) -> Version:
    return Version(subject=subject, version=version, schema_id=schema_id, deleted=False, timestamp_ms=version * 1000)


async def test_schemas_are_found_as_they_were_kept(store):
    """Ids count from one; a schema is found by id, by identity and by GUID, with all that was given."""
    plain = artifact('"string"')
    full = artifact(
        '"é\u2028"',
        Reference(name="n", subject="s", version=3),
        metadata={"properties": {"ü": "1"}},
        rule_set={"domainRules": [{"name": "r"}]},
    )
    async with store.write() as tx:
        assert await tx.highest_id() == 0
        assert [(await tx.add_schema(artifact)).id for artifact in (plain, full)] == [1, 2]
    async with store.read() as tx:
        for number, kept in ((1, plain), (2, full)):
            schema = await tx.schema(number)
            assert schema is not None
            assert schema.artifact == kept
            assert await tx.find_schema(kept.fingerprint) == schema
            assert await tx.schemas_with_guid(str(kept.guid)) == [schema]
        assert await tx.highest_id() == 2
        assert await tx.schema(3) is None
        assert await tx.find_schema("0" * 64) is None
        assert await tx.schemas_with_guid("none") == []


async def test_ids_are_never_given_again(store):
    """Not after a schema is gone, and not below one that a client chose."""
    async with store.write() as tx:
        for text in "abc":
            await tx.add_schema(artifact(text))
        await tx.remove_schema(3)
    async with store.write() as tx:
        assert (await tx.add_schema(artifact("d"))).id == 4
        assert (await tx.add_schema(artifact("e"), 100)).id == 100
        assert (await tx.add_schema(artifact("f"))).id == 101
        assert (await tx.add_schema(artifact("g"), 50)).id == 50
        assert (await tx.add_schema(artifact("h"))).id == 102


async def test_the_last_id(store):
    """After the highest id that fits on the wire there is no next one; a transaction that is taken back leaves the ids as they were."""

    async def highest(*texts: str) -> None:
        async with store.write() as tx:
            await tx.add_schema(artifact("last"), 2**31 - 1)
            for text in texts:
                await tx.add_schema(artifact(text))

    with pytest.raises(NoMoreIds):
        await highest("one more")
    async with store.write() as tx:
        assert (await tx.add_schema(artifact("a"))).id == 1
    await highest()
    with pytest.raises(NoMoreIds):
        async with store.write() as tx:
            await tx.add_schema(artifact("b"))


async def test_long_names(store):
    """Subjects of 1024 bytes, and a reference's name of any length, are kept as they are."""
    randomness = random.Random(1)
    subject = "".join(chr(randomness.randrange(0x4E00, 0x9FFF)) for _ in range(341))
    name = "".join(chr(randomness.randrange(0x21, 0x7E)) for _ in range(100_000))
    reference = Reference(name=name, subject=subject, version=1)
    async with store.write() as tx:
        await tx.add_schema(artifact("a"))
        await tx.add_version(use(subject, 1, 1))
        await tx.put_setting("config", subject, {"compatibilityLevel": "FULL"})
        await tx.add_schema(artifact("b", reference))
    async with store.read() as tx:
        assert await tx.versions(subject) == [use(subject, 1, 1)]
        assert await tx.setting("config", subject) == {"compatibilityLevel": "FULL"}
        assert await tx.referenced_by(subject, 1) == [2]
        schema = await tx.schema(2)
        assert schema is not None
        assert schema.artifact.references == (reference,)


async def test_an_id_belongs_to_one_schema(store):
    """An id that is taken is refused, and the transaction's other writes are gone with it."""
    async with store.write() as tx:
        await tx.add_schema(artifact("a"), 7)

    async def take_it() -> None:
        async with store.write() as tx:
            await tx.put_setting("config", "s", {"compatibilityLevel": "FULL"})
            await tx.add_schema(artifact("b"), 7)

    with pytest.raises(IdTaken):
        await take_it()
    async with store.read() as tx:
        schema = await tx.schema(7)
        assert schema is not None
        assert schema.artifact.text == "a"
        assert await tx.setting("config", "s") is None


async def test_versions(store):
    """Sorted by subject and number, soft-deleted ones kept and marked, removed ones gone."""
    async with store.write() as tx:
        for text in "ab":
            await tx.add_schema(artifact(text))
        for subject, version, schema_id in (("s", 10, 2), ("s", 2, 1), ("r", 1, 1), ("Z", 1, 2)):
            await tx.add_version(use(subject, version, schema_id))
        await tx.mark_deleted("s", 2)
    async with store.read() as tx:
        every = await tx.every_version("", deleted=True)
        assert [(version.subject, version.version) for version in every] == [("Z", 1), ("r", 1), ("s", 2), ("s", 10)]
        assert [(version.version, version.deleted) for version in await tx.versions("s")] == [(2, True), (10, False)]
        assert [version.subject for version in await tx.versions_of_schema(1)] == ["r", "s"]
        assert (await tx.versions("r")) == [use("r", 1, 1)]
        assert await tx.versions("missing") == []
    async with store.write() as tx:
        await tx.remove_version("s", 2)
        assert [version.subject for version in await tx.versions_of_schema(1)] == ["r"]


async def test_settings_of_a_subject(store):
    """All that applies to it at once: its own and the registry's, of no other subject."""
    async with store.write() as tx:
        assert await tx.settings("s") == {}
        await tx.put_setting("config", GLOBAL, {"compatibilityLevel": "FULL"})
        await tx.put_setting("mode", "s", {"mode": "READONLY"})
        await tx.put_setting("mode", "t", {"mode": "IMPORT"})
        registry = {("config", GLOBAL): {"compatibilityLevel": "FULL"}}
        assert await tx.settings("s") == {**registry, ("mode", "s"): {"mode": "READONLY"}}
        assert await tx.settings(GLOBAL) == registry


NAMES = [
    "",
    "A",
    "B",
    "Z",
    "a",
    "a-b",
    "a1",
    "a\U0010ffff",
    "a\U0010ffffb",
    "b",
    "z\ud7ff",
    "z\ue000",
    "é",
    "\U0001f600",
]


async def test_lists_by_prefix(store):
    """By code points in every database, whatever is in the prefix."""
    async with store.write() as tx:
        await tx.add_schema(artifact("a"))
        for name in reversed(NAMES[1:]):
            await tx.add_version(use(name, 1, 1))
        for prefix in [*NAMES, "a\U0010ffff\U0010ffff", "\U0010ffff", "\0", "%", "_"]:
            wanted = [name for name in NAMES[1:] if name.startswith(prefix)]
            assert await tx.subjects(prefix, Deleted.LEFT_OUT) == wanted
            assert [version.subject for version in await tx.every_version(prefix, deleted=False)] == wanted
        assert await tx.subjects_of_schema(1, deleted=False) == NAMES[1:]


async def test_parts_of_lists(store):
    """Offset and limit, of what is left after those that are deleted are left out, included, or alone."""
    async with store.write() as tx:
        for text in "ab":
            await tx.add_schema(artifact(text))
        for subject, version, schema_id in (
            ("r", 1, 1),
            ("s", 1, 1),
            ("s", 2, 2),
            ("s", 3, 1),
            ("t", 1, 1),
            ("t", 2, 2),
        ):
            await tx.add_version(use(subject, version, schema_id))
        for subject, version in (("r", 1), ("s", 2), ("s", 3)):
            await tx.mark_deleted(subject, version)
    async with store.read() as tx:
        for deleted, names, numbers in (
            (Deleted.LEFT_OUT, ["s", "t"], [1]),
            (Deleted.INCLUDED, ["r", "s", "t"], [1, 2, 3]),
            (Deleted.ALONE, ["r"], [2, 3]),
        ):
            assert await tx.subjects("", deleted) == names
            assert await tx.version_numbers("s", deleted) == numbers
            assert await tx.subjects("", deleted, Part(offset=1, limit=1)) == names[1:2]
            assert await tx.version_numbers("s", deleted, Part(offset=1)) == numbers[1:]

        async def every(*, deleted: bool, **more) -> list[tuple[str, int]]:
            return [
                (version.subject, version.version) for version in await tx.every_version("", deleted=deleted, **more)
            ]

        assert await every(deleted=False) == [("s", 1), ("t", 1), ("t", 2)]
        assert await every(deleted=False, latest_only=True) == [("s", 1), ("t", 2)]
        assert await every(deleted=True, latest_only=True) == [("r", 1), ("s", 3), ("t", 2)]
        assert await every(deleted=True, part=Part(offset=2, limit=2)) == [("s", 2), ("s", 3)]
        assert await every(deleted=True, part=Part(limit=0)) == []

        assert await tx.subjects_of_schema(1, deleted=True) == ["r", "s", "t"]
        assert await tx.subjects_of_schema(1, deleted=False, part=Part(limit=1)) == ["s"]
        assert [version.version for version in await tx.versions_of_schema(1, subject="s")] == [1, 3]
        assert [version.subject for version in await tx.versions_of_schema(1, deleted=False)] == ["s", "t"]
        assert await tx.versions_of_schema(1, part=Part(offset=1, limit=1)) == [use("s", 1, 1)]

        assert await tx.version("s", None, deleted=False) == use("s", 1, 1)
        assert (await tx.version("s", None, deleted=True)).version == 3
        assert (await tx.version("s", 2, deleted=True)).version == 2
        assert await tx.version("s", 2, deleted=False) is None
        assert await tx.version("x", None, deleted=True) is None


@pytest.mark.slow
async def test_long_lists(store):
    """They are read some at a time, and are whole."""
    names = [f"{number:05}" for number in range(4_500)]
    async with store.write() as tx:
        await tx.add_schema(artifact("a"))
        for name in names:
            await tx.add_version(use(name, 1, 1))
        assert await tx.subjects("", Deleted.INCLUDED) == names
        assert await tx.subjects("", Deleted.INCLUDED, Part(offset=10, limit=4_100)) == names[10:4_110]


async def test_references(store):
    """Who refers to a version, each once, ascending; gone with the schema. Two references may share a name."""
    first = Reference(name="n", subject="s", version=1)
    other = Reference(name="n", subject="t", version=1)
    async with store.write() as tx:
        await tx.add_schema(artifact("a"))
        await tx.add_schema(artifact("b", first, first, other))
        await tx.add_schema(artifact("c", first))
        assert await tx.referenced_by("s", 1) == [2, 3]
        await tx.add_version(use("u", 1, 3))
        assert await tx.referenced_by("s", 1, deleted=False) == [3]
        assert await tx.referenced_by("s", 1, part=Part(offset=1, limit=1)) == [3]
        await tx.mark_deleted("u", 1)
        assert await tx.referenced_by("s", 1, deleted=False) == []
        assert await tx.referenced_by("t", 1) == [2]
        assert await tx.referenced_by("s", 2) == []
        await tx.remove_schema(2)
        assert await tx.referenced_by("s", 1) == [3]
        assert await tx.referenced_by("t", 1) == []


async def test_settings(store):
    """Kept by kind and subject, replaced as a whole, removed quietly."""
    async with store.write() as tx:
        await tx.put_setting("config", GLOBAL, {"compatibilityLevel": "FULL"})
        await tx.put_setting("config", "s", {"normalize": True, "compatibilityLevel": "NONE"})
        await tx.put_setting("config", "s", {"normalize": False})
        await tx.put_setting("mode", "s", {"mode": "READONLY"})
    async with store.read() as tx:
        assert await tx.setting("config", GLOBAL) == {"compatibilityLevel": "FULL"}
        assert await tx.setting("config", "s") == {"normalize": False}
        assert await tx.setting("mode", "s") == {"mode": "READONLY"}
        assert await tx.setting("mode", GLOBAL) is None
    async with store.write() as tx:
        await tx.remove_setting("config", "s")
        await tx.remove_setting("config", "s")
        assert await tx.setting("config", "s") is None
        assert await tx.setting("mode", "s") is not None


async def test_nothing_of_a_failed_transaction_stays(store):
    """An exception in the block takes back every write in it."""

    async def fail() -> None:
        async with store.write() as tx:
            await tx.add_schema(artifact("a"))
            await tx.add_version(use("s", 1, 1))
            await tx.put_setting("mode", "s", {"mode": "IMPORT"})
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    async with store.read() as tx:
        assert await tx.every_version("", deleted=True) == []
        assert await tx.highest_id() == 0
        assert await tx.setting("mode", "s") is None


async def test_writers_take_turns(store):
    """What a writer read stays true until it ends: fifty of them count to fifty."""

    async def add() -> None:
        async with store.write() as tx:
            number = len(await tx.versions("s")) + 1
            await asyncio.sleep(0)
            stored = await tx.add_schema(artifact(str(number)))
            await tx.add_version(use("s", number, stored.id))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(add())
    async with store.read() as tx:
        assert [version.version for version in await tx.versions("s")] == list(range(1, 51))
        assert sorted({version.schema_id for version in await tx.versions("s")}) == list(range(1, 51))


async def test_a_reader_sees_one_state(store):
    """A view that is open does not change while others write, and readers do not wait for writers."""
    async with store.read() as before:
        assert await before.every_version("", deleted=True) == []
        async with store.write() as tx:
            await tx.add_schema(artifact("a"))
            await tx.add_version(use("s", 1, 1))
            async with store.read() as during:
                assert await during.every_version("", deleted=True) == []
        assert await before.every_version("", deleted=True) == []
        assert await before.highest_id() == 0
    async with store.read() as after:
        assert len(await after.every_version("", deleted=True)) == 1


async def test_two_stores_on_one_database(database):
    """Two stores that start at once on an empty database give every id once."""
    stores = [SqlStore(database) for _ in range(2)]
    await asyncio.gather(*(store.open() for store in stores))

    async def add(store: Store, number: int) -> int:
        async with store.write() as tx:
            return (await tx.add_schema(artifact(str(number)))).id

    ids = await asyncio.gather(*(add(stores[number % 2], number) for number in range(20)))
    assert sorted(ids) == list(range(1, 21))
    for opened in stores:
        await opened.close()


async def test_a_new_file_that_another_process_writes_to(tmp_path, monkeypatch):
    """Until the other one ends, a store that opens the file waits: SQLite itself does not, to change how the file's journal is kept."""
    path = tmp_path / "registry.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waited = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)
        other.execute("COMMIT")

    monkeypatch.setattr(engines, "sleep", wait)
    store = SqlStore(f"sqlite+aiosqlite:///{path}")
    await store.open()
    assert len(waited) == 1
    async with store.read() as after:
        assert await after.highest_id() == 0
    await store.close()
    other.close()


async def test_a_database_stays(database):
    """What was written is there after the store is closed and opened again, and ids go on."""
    for number in (1, 2):
        store = SqlStore(database)
        await store.open()
        async with store.write() as tx:
            assert (await tx.add_schema(artifact(str(number)))).id == number
            await tx.remove_schema(number)
        await store.close()


async def test_versions_are_counted_by_type_and_deletion(store):
    """A schema of two subjects counts twice; what is deleted for good is not counted."""
    async with store.write() as tx:
        assert dict(await tx.version_counts()) == {}
        schema = await tx.add_schema(artifact('"string"'))
        for subject in ("a", "b", "c"):
            await tx.add_version(use(subject, 1, schema.id))
        await tx.mark_deleted("b", 1)
        await tx.mark_deleted("c", 1)
        await tx.remove_version("c", 1)
    async with store.read() as tx:
        assert dict(await tx.version_counts()) == {("AVRO", False): 1, ("AVRO", True): 1}
