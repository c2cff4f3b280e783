"""Resolving a schema's references in a store.

Here: versions and texts.
Not here: their meaning (`domain`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from busway_registry.domain import errors
from busway_registry.domain.schemas import Reference, SchemaRequest
from busway_registry.domain.subjects import LATEST
from busway_registry.store.interface import Transaction

_DEEPEST: Final = 64
_MOST_CHARS: Final = 4_000_000
"""Limit of all direct and indirect references together."""


async def with_numbers(tx: Transaction, request: SchemaRequest) -> SchemaRequest:
    """Replace latest by the live version's number in references."""
    references = []
    for reference in request.references:
        version = reference.version
        if version == LATEST:
            latest = await tx.version(reference.subject, None, deleted=False)
            version = latest.version if latest is not None else version
        references.append(replace(reference, version=version))
    return replace(request, references=tuple(references))


async def reference_texts(tx: Transaction, references: Sequence[Reference]) -> list[str]:
    """Return all direct and indirect references, dependencies first, each once.

    Raises:
        RegistryError: 42201, one does not exist, the chain or the texts are too long.
    """
    texts: dict[tuple[str, int], str] = {}

    async def visit(reference: Reference, depth: int) -> None:
        key = (reference.subject, reference.version)
        if key in texts:
            return
        if depth > _DEEPEST:
            raise errors.invalid_schema(f"references are nested more than {_DEEPEST} levels deep")
        version = await tx.version(reference.subject, reference.version, deleted=True)
        stored = await tx.schema(version.schema_id) if version is not None else None
        if stored is None:
            raise errors.invalid_schema(
                f"No schema reference found for subject '{reference.subject}' and version {reference.version}; register it first"
            )
        for deeper in stored.artifact.references:
            await visit(deeper, depth + 1)
        texts[key] = stored.artifact.text
        if sum(map(len, texts.values())) > _MOST_CHARS:
            raise errors.invalid_schema(f"its references are longer than {_MOST_CHARS} characters all together")

    for reference in references:
        await visit(reference, 0)
    return list(texts.values())
