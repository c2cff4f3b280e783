"""What each host may use of a bound, judged by a list of all that is there."""

import gc
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from busway_bus.kernel.fair_share import NOBODY, Account, FairShare

LIMIT = 120
HOSTS = st.sampled_from([NOBODY, "a", "b", "c"])
PARTS = st.integers(0, 2)
NAMES = st.sampled_from("xyz")
SIZES = st.integers(0, 70)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), PARTS, NAMES, HOSTS, SIZES),
        st.tuples(st.just("load"), PARTS, NAMES, SIZES),
        st.tuples(st.just("let go"), PARTS),
    ),
    max_size=40,
)


@dataclass
class Judge:
    """Each thing by the part of the node that has it and its name, with whose it is and its size."""

    there: dict[tuple[int, str], tuple[str, int]] = field(default_factory=dict)

    def used(self, host: str | None = None) -> int:
        return sum(size for owner, size in self.there.values() if host in {None, owner})

    def may(self, host: str, more: int) -> bool:
        free = LIMIT - self.used() - more
        return more <= 0 or free >= (0 if host == NOBODY else self.used(host) + more)


@given(STEPS)
def test_an_account_is_what_is_there(steps: list[tuple[object, ...]]) -> None:
    """Whichever account takes over from another, and whatever is let go; what fits is what leaves as much free as its host has."""
    judge, share = Judge(), FairShare(LIMIT)
    accounts = [Account(share) for _ in range(3)]
    for step in steps:
        match step:
            case "put", int(part), str(name), str(host), int(size):
                before = judge.there.get((part, name), (NOBODY, 0))
                may = judge.may(host, size - before[1])
                assert (accounts[part].refusal(host, size - before[1]) is None) is may
                if may:
                    accounts[part].replace(before, (host, size))
                    judge.there[part, name] = host, size
            case "load", int(part), str(name), int(size):
                accounts[part].replace(judge.there.get((part, name), (NOBODY, 0)), (NOBODY, size))
                judge.there[part, name] = NOBODY, size
            case "let go", int(part):
                accounts[part] = Account(share)
                gc.collect(0)
                judge.there = {place: used for place, used in judge.there.items() if place[0] != part}
        assert share.used == judge.used()
        assert all(share.of(host) == judge.used(host) for host in "abc")
        assert [account.held for account in accounts] == [
            sum(size for (part, _), (_, size) in judge.there.items() if part == at) for at in range(3)
        ]
        assert share._used_by.keys() == {host for host in "abc" if judge.used(host)}, (
            "nothing is kept of who has nothing"
        )
    copied = accounts[0].copied()
    assert copied.used == share.used - accounts[0].held
    assert share.used == judge.used()


@given(st.lists(HOSTS.filter(bool), max_size=200))
def test_a_newcomer_finds_room_whatever_others_take(takers: list[str]) -> None:
    """As long as they only take what fits; one host alone gets half."""
    share = FairShare(1_000)
    account = Account(share)
    for host in takers:
        if share.fits(host, 7):
            account.change(host, 7)
    assert share.fits("newcomer", 7)
    assert all(share.of(host) <= 500 for host in "abc")


def test_a_refusal_names_the_share_and_what_to_do() -> None:
    """The client gets a refusal, and the log a line; neither where it fits."""
    refusals: list[tuple[str, str]] = []
    share = FairShare(
        8 << 20, what="ids", remedy="Use fewer.", refused=lambda host, text: refusals.append((host, text))
    )
    account = Account(share)
    account.change("/10.0.0.1", 3 << 20)
    assert account.refusal("/10.0.0.1", 1 << 20) is None
    text = account.refusal("/10.0.0.1", 2 << 20)
    assert text == (
        "host 10.0.0.1 has 3.0 MiB for ids, and 2,097,152 bytes more are above its share: of 8.0 MiB, 3.0 MiB of which are in use, "
        "a host gets at most as much as it leaves free. Use fewer."
    )
    assert refusals == [("/10.0.0.1", text)]
