"""What a new version takes from the one before it.

What lives here: metadata and rules that a client left out are those of the latest version, as Confluent's server has it
(`maybeSetMetadataRuleSet`). What does not: which version that is (`registering`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from busway_registry.domain.schemas import Artifact

_VERSION: Final = "confluent:version"


def inheriting(artifact: Artifact, latest: Artifact) -> Artifact:
    """The schema with the latest version's metadata and rules where it brings none."""
    return replace(
        artifact,
        metadata=latest.metadata if artifact.metadata is None else artifact.metadata,
        rule_set=latest.rule_set if artifact.rule_set is None else artifact.rule_set,
    )


def numbered(artifact: Artifact, version: int) -> Artifact:
    """The schema with its own number in the metadata, if a number is there."""
    properties: Mapping[str, str] = (artifact.metadata or {}).get("properties", {})
    if _VERSION not in properties:
        return artifact
    return replace(
        artifact, metadata={**(artifact.metadata or {}), "properties": {**properties, _VERSION: str(version)}}
    )
