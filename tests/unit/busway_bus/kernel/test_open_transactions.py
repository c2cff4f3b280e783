"""Which of several writers of a key counts, judged by offsets as Kafka does it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from busway_bus.kernel.open_transactions import OpenTransactions

KEYS = st.sampled_from("abc")
PRODUCERS = st.integers(1, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), PRODUCERS, KEYS),
        st.tuples(st.just("plain"), KEYS),
        st.tuples(st.just("tombstone"), KEYS),
        st.tuples(st.just("end"), PRODUCERS, st.booleans()),
    ),
    max_size=30,
)


@dataclass
class Judge:
    """Kafka's rule: every value keeps its offset, and what is committed takes the place of what stands before it in the log alone."""

    in_force: dict[str, int] = field(default_factory=dict)
    pending: dict[int, dict[str, int]] = field(default_factory=dict)

    def end(self, producer_id: int, committed: bool) -> None:
        for key, offset in self.pending.pop(producer_id, {}).items():
            if committed and offset > self.in_force.get(key, -1):
                self.in_force[key] = offset

    def forget(self, key: str) -> None:
        self.in_force.pop(key, None)
        for values in self.pending.values():
            values.pop(key, None)


@given(STEPS)
def test_the_last_record_in_the_log_counts(steps: list[tuple[object, ...]]) -> None:
    """Whatever is put, overtaken, forgotten and ended in which order; and what is counted is what is there."""
    judge, in_force = Judge(), {}
    held: Counter[tuple[str, int]] = Counter()

    def counted(values: Sequence[tuple[str, int]], by: int) -> None:
        for value in values:
            held[value] += by

    subject: OpenTransactions[str, int] = OpenTransactions(counted)
    for offset, step in enumerate(steps, start=1):
        match step:
            case "put", int(producer_id), str(key):
                judge.pending.setdefault(producer_id, {})[key] = offset
                subject.put(producer_id, key, offset)
            case "plain", str(key):
                judge.in_force[key] = in_force[key] = offset
                subject.overtake(key)
            case "tombstone", str(key):
                judge.forget(key)
                in_force.pop(key, None)
                subject.forget(key)
            case "end", int(producer_id), bool(committed):
                judge.end(producer_id, committed)
                in_force.update(subject.end(producer_id, committed=committed))
        assert in_force == judge.in_force
        pending = {(key, writer, at) for writer, values in judge.pending.items() for key, at in values.items()}
        assert {(key, writer, at) for key, writer, at, _ in subject.all()} == pending
        assert set(subject) == {key for key, _, _ in pending}
        assert all((key in subject) is (key in set(subject)) for key in "abc")
        assert +held == Counter((key, at) for key, _, at in pending)
        assert min(held.values(), default=0) >= 0
        counting = {(key, writer) for key, writer, _, counts in subject.all() if counts}
        assert counting == {(key, writer) for key, writer, at in pending if at > judge.in_force.get(key, -1)}
