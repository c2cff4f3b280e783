"""The report of a run: what was done, what it has to reach, what must not be.

Here: floors, the table.
Not here: the run that fills it (`run`), how anomalies are looked for (`ledger`, `replicas`).
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.faults import DISK_KINDS, NETWORK_KINDS, POWER_KINDS
from tests.chaos.ledger import SHOWN, Anomalies
from tests.chaos.replicas import Comparison
from tests.chaos.systems import System

NO_SPACE: Final = "No space left on device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """What a run has to reach, for each fault where not said otherwise."""

    acknowledged: float = 40.0
    committed: float = 2.0
    aborted: float = 0.3
    leader_changes: float = 0.3
    read: float = 20.0

    def missed(
        self, faults: int, kinds: Collection[str], writers: Collection[str], counts: "Counter[str]"
    ) -> list[str]:
        missed = [
            f"{name.replace('_', ' ')}: {counts[name]}, the floor is {wanted:.0f}"
            for name in self.__slots__
            if counts[name] < (wanted := getattr(self, name) * faults)
        ]
        wanted_kinds = kinds if faults >= len(kinds) else ()
        missed += [f"no fault of the kind {kind}" for kind in wanted_kinds if not counts[kind]]
        if any(counts[kind] for kind in NETWORK_KINDS) and not counts["packets dropped"]:
            missed.append("no packet was dropped")
        if any(counts[kind] for kind in POWER_KINDS) and not counts["unsynced bytes dropped"]:
            missed.append("no power cut dropped a byte")
        if any(counts[kind] for kind in DISK_KINDS) and not counts[NO_SPACE]:
            missed.append("no node had too little space")
        for writer in writers:
            kind = "committed" if writer.endswith("transactions") else "acknowledged"
            if not counts[f"{kind} by {writer}"]:
                missed.append(f"nothing {kind} by {writer}")
        return missed


@dataclass(slots=True, kw_only=True)
class Report:
    """The outcome of a run.

    Attributes:
        counts: operations, faults by kind, changes of leaders and controllers.
        recoveries_s: by kind of fault, from its end until all writers go on.
        starts_s: of each process, until it serves.
        problems: what kept the run from its end, and missed floors.
    """

    system: System
    seed: int
    faults: int
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    recoveries_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    starts_s: list[float] = field(default_factory=list)
    anomalies: Anomalies = field(default_factory=Anomalies)
    replicas: Comparison = field(default_factory=Comparison)
    problems: list[str] = field(default_factory=list)
    folder: Path | None = None

    @property
    def good(self) -> bool:
        return not self.problems and (self.equal or not self.system.durable)

    @property
    def equal(self) -> bool:
        """Whether clients and replicas have what they were promised."""
        return not (self.replicas.differences or any(self.anomalies.counts().values()))

    def table(self) -> str:
        """Return the report as text."""
        rows: list[tuple[str, object]] = [
            ("system", self.system.name),
            ("seed", self.seed),
            ("faults", self.faults),
            ("seconds", f"{self.seconds:.0f}"),
        ]
        rows += [(name.replace("_", " "), count) for name, count in sorted(self.counts.items())]
        if self.starts_s:
            rows += [("seconds until a process serves: median", f"{statistics.median(self.starts_s):.1f}")]
            rows += [("seconds until a process serves: most", f"{max(self.starts_s):.1f}")]
        rows += [
            (f"seconds until all writers go on after {kind}: most", f"{max(seconds):.1f}")
            for kind, seconds in sorted(self.recoveries_s.items())
        ]
        rows += [("bytes equal on all replicas", self.replicas.compared)]
        rows += [("bytes above a high watermark", self.replicas.above)]
        rows += [(name.replace("_", " ").upper(), count) for name, count in self.anomalies.counts().items()]
        rows += [("DIFFERENT LOGS", len(self.replicas.differences))]
        lines = [f"{name:<72} {value!s:>12}" for name, value in rows]
        for name in self.anomalies.counts():
            lines += [f"{name}: {example}" for example in getattr(self.anomalies, name)[:SHOWN]]
        lines += [*self.replicas.differences[:SHOWN], *self.problems]
        if not self.good:
            lines.append(f"the nodes' logs and data are kept in {self.folder}")
        verdict = "good" if self.equal else f"not durable at the defaults of {self.system.name}"
        return "\n".join([*lines, verdict if self.good else "FAILED"])
