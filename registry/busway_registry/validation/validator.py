"""Validation of a schema: on the event loop if it is small, in a process of the pool otherwise.

What lives here: that decision, and what is left of a request's time and budget. What does not: the rules (`domain`), the processes
(`pool`).
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from busway_registry.domain.avro.recent import RecentlyParsed
from busway_registry.domain.compatibility.breaches import MOST_STEPS, Budget, TooMuchWork
from busway_registry.domain.compatibility.check import Earlier, explain
from busway_registry.domain.compatibility.levels import Level
from busway_registry.domain.errors import invalid_schema
from busway_registry.domain.schemas import Artifact, SchemaRequest, build
from busway_registry.validation.pool import Pool

HERE_CHARS: Final = 8_192
"""Text that is read on the event loop: 15 ms of CPU for the dearest that was found (numbers in a default, normalised)."""
HERE_STEPS: Final = 1_000
"""Steps of a comparison that are taken on the event loop: 5 ms; beyond them it starts over in the pool."""
DEADLINE_S: Final = 30.0
"""For all that a request has judged, with the wait for a process."""
_CACHED_CHARS: Final = 500_000
"""About 25 MiB of trees; larger schemas are remembered by the processes."""


class SchemaValidator:
    """Judges schemas for one registry.

    Args:
        pool: the processes.
        deadline_s: what one request may take.
    """

    def __init__(self, pool: Pool, deadline_s: float = DEADLINE_S) -> None:
        self._pool = pool
        self._deadline_s = deadline_s
        self._parse = RecentlyParsed(_CACHED_CHARS)

    def request(self) -> "ValidationRequest":
        """For one request, from now on."""
        return ValidationRequest(self._pool, self._parse, self._deadline_s)


class ValidationRequest:
    """What one request has judged; its time runs from the beginning, its budget holds for everything."""

    def __init__(self, pool: Pool, parse: RecentlyParsed, deadline_s: float) -> None:
        self._pool = pool
        self._parse = parse
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + deadline_s
        self._steps = MOST_STEPS

    async def build(self, request: SchemaRequest, texts: Sequence[str], *, normalize: bool) -> Artifact:
        """The checked, canonical form of a request.

        Raises:
            RegistryError: as `schemas.build`, and as `Pool.ask`.
        """
        if len(request.text) + sum(map(len, texts)) <= HERE_CHARS:
            return build(request, texts, normalize=normalize)
        arguments = {"request": request, "reference_texts": list(texts), "normalize": normalize}
        artifact: Artifact = await self._pool.ask("build", arguments, within_s=self._left_s())
        return artifact

    async def explain(self, new: Artifact, texts: Sequence[str], earlier: Sequence[Earlier], level: Level) -> list[str]:
        """What speaks against a schema; empty when it is compatible.

        Raises:
            RegistryError: 42201 the budget of the request is spent; and as `Pool.ask`.
        """
        if level is Level.NONE or not earlier:
            return []
        try:
            if self._is_small(new, texts, earlier):
                try:
                    budget = Budget(min(HERE_STEPS, self._steps))
                    return explain(new, texts, earlier, level, budget=budget, parse=self._parse)
                except TooMuchWork:
                    pass
            arguments = {
                "new": new,
                "reference_texts": list(texts),
                "earlier": list(earlier),
                "level": level,
                "steps": self._steps,
            }
            messages: list[str]
            messages, self._steps = await self._pool.ask("explain", arguments, within_s=self._left_s())
        except TooMuchWork:
            raise invalid_schema(
                f"there are more than {MOST_STEPS} pairs of types to compare with earlier versions; split its unions, or set a "
                "level that looks at fewer versions"
            ) from None
        return messages

    def _is_small(self, new: Artifact, texts: Sequence[str], earlier: Sequence[Earlier]) -> bool:
        to_read = self._parse.missing_chars(new.text, texts)
        for version in earlier:
            if to_read > HERE_CHARS:
                break
            to_read += self._parse.missing_chars(version.artifact.text, version.reference_texts)
        return to_read <= HERE_CHARS

    def _left_s(self) -> float:
        return max(self._until - self._loop.time(), 0.0)
