"""The arithmetic of the benchmark: ratios of pairs, medians, and the table made of them."""

import json

import pytest
from benchmarks import workloads
from benchmarks.clients import LoadFailed, parse_fetched, parse_produced
from benchmarks.report import Metric, Row, as_json, figure, table

RATE = Metric(name="produced", unit="MB/s", higher_is_better=True, target=1.5)
START = Metric(name="to first record", unit="s", higher_is_better=False, target=0.5, absolute=True)


def row(ours: list[float], theirs: list[float], metric: Metric = RATE) -> Row:
    """A row with these rounds."""
    return Row(durability="flush", workload="produce", metric=metric, ours=ours, theirs=theirs)


def test_the_ratio_is_the_median_of_the_pairs() -> None:
    """A round that was slow for both counts by its own ratio, not by its figures."""
    row_of_pairs = row([100, 10, 300], [50, 5, 100])
    assert row_of_pairs.ratios == [2, 2, 3]
    assert row_of_pairs.ratio == 2


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([5.0], []), ([5.0], [0.0])])
def test_without_a_pair_there_is_no_ratio(ours: list[float], theirs: list[float]) -> None:
    """A missing figure, or a zero to divide by, is no ratio and no verdict."""
    assert row(ours, theirs).ratio is None
    assert row(ours, theirs).met is None


@pytest.mark.parametrize(
    ("metric", "ours", "theirs", "met"),
    [
        (RATE, 150.0, 100.0, True),
        (RATE, 149.0, 100.0, False),
        (START, 0.5, 4.0, True),
        (START, 0.6, 4.0, False),
        (workloads.PRODUCE_CPU, 1.0, 2.0, True),
        (workloads.P99, 1.0, 2.0, None),
    ],
)
def test_an_aim_is_met_or_missed(metric: Metric, ours: float, theirs: float, met: bool | None) -> None:
    """An aim is a ratio, or a figure of ours where it is absolute; the better direction decides."""
    assert row([ours], [theirs], metric).met is met


def test_the_table_shows_medians_ratios_and_aims() -> None:
    """One line for each row, in order, every column as wide as its widest cell."""
    shown = table([row([100, 400, 200], [100, 100, 100]), row([0.25], [4.0], START)]).splitlines()
    assert [cell.strip() for cell in shown[2].strip("|").split("|")] == [
        *("flush", "produce", "produced, MB/s", "200", "100", "2.00", "1.00 to 4.00", "≥ 1.5: met")
    ]
    assert [cell.strip() for cell in shown[3].strip("|").split("|")][3:] == ["0.25", "4.00", "0.06", "", "≤ 0.5 s: met"]
    assert len({len(line) for line in shown}) == 1


def test_json_holds_every_round() -> None:
    """The file can be read back and holds the samples, the ratio and what was run."""
    read = json.loads(json.dumps(as_json([row([2, 4], [1, 1])], {"Java": "17"}, rounds=2)))
    assert read["rounds"] == 2
    assert read["machine"] == {"Java": "17"}
    assert read["rows"][0]["busway"] == [2, 4]
    assert read["rows"][0]["ratio"] == 3


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "0.12"), (9.994, "9.99"), (12.34, "12.3"), (123.4, "123"), (1234567, "1,234,567")]
)
def test_figures_have_about_three_digits(value: float, text: str) -> None:
    """Neither noise behind the point nor missing digits in front of it."""
    assert figure(value) == text


def test_the_producer_tool_is_read_by_its_last_summary() -> None:
    """With warm-up records the tool prints two summaries; the steady one comes last."""
    moved = parse_produced(
        "90 records sent, 45.0 records/sec (0.04 MB/sec), 3.2 ms avg latency, 9.00 ms max latency.\n"
        "100 records sent, 50.0 records/sec (0.05 MB/sec), 3.1 ms avg latency, 9.00 ms max latency, 3 ms 50th.\n"
        "80 steady state records sent, 160.0 records/sec (0.16 MB/sec), 1.1 ms avg latency, 2.00 ms max latency.\n"
    )
    assert (moved.records, moved.seconds) == (80, 0.5)


def test_the_consumer_tool_is_read_by_its_fetch_time() -> None:
    """The time spent in the group's join is not the broker's throughput."""
    moved = parse_fetched(
        "2026-11-21 07:00:00:000, 2026-11-21 07:00:04:000, 9.7, 2.4, 10000, 2500.0, 3500, 500, 19.5, 20000.0\n"
    )
    assert (moved.records, moved.seconds) == (10_000, 0.5)


@pytest.mark.parametrize("parse", [parse_produced, parse_fetched])
def test_a_tool_that_failed_is_quoted(parse: object) -> None:
    """What the tool said instead of its summary is in the error."""
    with pytest.raises(LoadFailed, match="no such host"):
        parse("no such host\n")  # type: ignore[operator]


def test_every_workload_has_its_own_name() -> None:
    """`--only` can tell them apart, and a quick run has fewer of the same ones."""
    names = [load.name for load in workloads.loads(quick=False)]
    assert len(set(names)) == len(names)
    assert {load.name for load in workloads.loads(quick=True)} < set(names)
