"""Validation of a schema: on the event loop if small, otherwise in a process of the pool.

Here: that decision, and the rest of a request's time and budget.
Not here: rules (`domain`), processes (`pool`).
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
"""Limit of text on the event loop. Worst known case: 15 ms (numbers in a default, normalised)."""
HERE_STEPS: Final = 1_000
"""Limit of comparison steps on the event loop: 5 ms. Beyond it the pool starts over."""
DEADLINE_S: Final = 30.0
"""Limit of a request's validation, including the wait for a process."""
_CACHED_CHARS: Final = 500_000
"""About 25 MiB of trees; the processes cache larger schemas."""


class SchemaValidator:
    def __init__(self, pool: Pool, deadline_s: float = DEADLINE_S) -> None:
        self._pool = pool
        self._deadline_s = deadline_s
        self._parse = RecentlyParsed(_CACHED_CHARS)

    def request(self) -> "ValidationRequest":
        return ValidationRequest(self._pool, self._parse, self._deadline_s)


class ValidationRequest:
    """Validations of a request, with a common deadline and budget."""

    def __init__(self, pool: Pool, parse: RecentlyParsed, deadline_s: float) -> None:
        self._pool = pool
        self._parse = parse
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + deadline_s
        self._steps = MOST_STEPS

    async def build(self, request: SchemaRequest, texts: Sequence[str], *, normalize: bool) -> Artifact:
        """Return the checked, canonical form of a request.

        Raises:
            RegistryError: as `schemas.build` and `Pool.ask`.
        """
        if len(request.text) + sum(map(len, texts)) <= HERE_CHARS:
            return build(request, texts, normalize=normalize)
        arguments = {"request": request, "reference_texts": list(texts), "normalize": normalize}
        artifact: Artifact = await self._pool.ask("build", arguments, within_s=self._left_s())
        return artifact

    async def explain(self, new: Artifact, texts: Sequence[str], earlier: Sequence[Earlier], level: Level) -> list[str]:
        """Return a schema's breaches; empty if compatible.

        Raises:
            RegistryError: 42201 the request's budget is spent; and as `Pool.ask`.
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
