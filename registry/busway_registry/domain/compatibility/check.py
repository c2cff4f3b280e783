"""A new schema against earlier versions, at a level: the verdict and its explanation.

What lives here: which pairs are compared, in which order, and how a breach is told. What does not: the rules for one pair (`avro`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from busway_registry.domain.avro.parser import parse
from busway_registry.domain.compatibility.avro import TooManyPairs, incompatibilities
from busway_registry.domain.compatibility.levels import Level
from busway_registry.domain.errors import invalid_schema
from busway_registry.domain.schemas import Artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A version to compare with; `reference_texts` are the schemas it refers to, dependencies first."""

    version: int
    artifact: Artifact
    reference_texts: Sequence[str] = ()


def explain(new: Artifact, reference_texts: Sequence[str], earlier: Sequence[Earlier], level: Level) -> list[str]:
    """What speaks against the new schema; empty when it is compatible.

    Args:
        new: the schema to judge.
        reference_texts: the schemas it refers to, dependencies first.
        earlier: live versions, newest first.
        level: of these only the first counts unless the level is transitive; the first bad one ends the search.

    Raises:
        RegistryError: 42201; the comparison would take too long.
    """
    if level is Level.NONE:
        return []
    for one in earlier if level.transitive else earlier[:1]:
        found = _against(new, reference_texts, one, level)
        if found:
            return [
                *found,
                _message({"oldSchemaVersion": one.version}),
                _message({"oldSchema": one.artifact.text}),
                _message({"compatibility": level.value}),
            ]
    return []


def _against(new: Artifact, reference_texts: Sequence[str], one: Earlier, level: Level) -> list[str]:
    if new.schema_type != one.artifact.schema_type:
        description = (
            f"the schema is {new.schema_type}, version {one.version} is {one.artifact.schema_type}: use another subject"
        )
        return [_message({"errorType": "TYPE_CHANGED", "description": description})]
    ours = parse(new.text, reference_texts).schema
    theirs = parse(one.artifact.text, one.reference_texts).schema
    found = []
    try:
        if level.old_reads_new:
            found += [(problem, "old", "new") for problem in incompatibilities(theirs, ours)]
        if level.new_reads_old:
            found += [(problem, "new", "old") for problem in incompatibilities(ours, theirs)]
    except TooManyPairs as problem:
        raise invalid_schema(str(problem)) from None
    return [
        _message(
            {
                "errorType": problem.kind,
                "description": f"at {problem.where} the {reader} schema cannot read what the {writer} schema writes: "
                f"{problem.remedy}",
                "additionalInfo": problem.info,
            }
        )
        for problem, reader, writer in found
    ]


def _message(parts: Mapping[str, object]) -> str:
    shown = (f"{name}:{value}" if isinstance(value, int) else f"{name}:'{value}'" for name, value in parts.items())
    return "{" + ", ".join(shown) + "}"
