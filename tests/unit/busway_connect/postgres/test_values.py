"""PostgreSQL's texts as values; what Debezium makes of the same texts is compared in `tests/conformance/connect_postgres`."""

from collections.abc import Callable
from typing import Any

import pytest

from busway_connect.postgres import columns, settings, values
from busway_connect.postgres.values import NotANumber


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (values.date, "1970-01-02", 1),
        (values.date, "0001-01-01", -719_162),
        (values.date, "0001-12-31 BC", -719_163),
        (values.date, "10000-01-01", 2_932_897),
        (values.date, "5874897-12-31", 2_145_042_905),
        (values.timestamp_us, "1969-12-31 23:59:59.999999", -1),
        (values.timestamp_us, "infinity", 2**63 - 1),
        (values.timestamp_ms, "1969-12-31 23:59:59.9999", -1),
        (values.time_us, "24:00:00", 86_400_000_000),
        (values.zoned_time, "10:00:00.5+02", "08:00:00.5Z"),
        (values.zoned_time, "00:30:00+01:00:01", "23:29:59Z"),
        (values.zoned_time, "24:00:00+00", "24:00:00Z"),
        (values.zoned_timestamp_of(6), "2020-01-02 03:04:05+00", "2020-01-02T03:04:05.000000Z"),
        (values.zoned_timestamp_of(0), "2020-01-02 03:04:05+00", "2020-01-02T03:04:05Z"),
        (values.zoned_timestamp_of(3), "0001-01-02 03:04:05.1+00 BC", "0000-01-02T03:04:05.100Z"),
        (values.interval_us, "-1 mons -00:00:00.000001", -2_629_800_000_001),
        (values.interval_us, "infinity", 2**63 - 1),
        (values.interval_us, "-infinity", -(2**63)),
        (values.interval_iso, "1 year -2 mons +3 days -04:05:06.7", "P1Y-2M3DT-4H-5M-6.7S"),
        (values.variable_scale_decimal, "1200.00", {"scale": 0, "value": b"\x04\xb0"}),
        (values.variable_scale_decimal, "-0.010", {"scale": 2, "value": b"\xff"}),
        (values.decimal_of(2), "-1.28", b"\x80"),
        (values.decimal_of(0), "128", b"\x00\x80"),
        (lambda text: values.money_units(text, 2), "-$1,234.50", -123_450),
        (lambda text: values.money_units(text, 2), "($0.01)", -1),
        (lambda text: values.money_units(text, 4), "$92,233,720,368,547,758.07", 922_337_203_685_477_580_700),
        (lambda text: values.money_units(text, 0), "-$1,234.50", -1_235),
        (values.bits, "100000000001", b"\x01\x08"),
        (values.array, "{}", []),
        (values.array, "{a,NULL,b}", ["a", None, "b"]),
        (values.array, '{"a,b","c\\"d","NULL",e,NULL,"","\\\\"}', ["a,b", 'c"d', "NULL", "e", None, "", "\\"]),
        (values.array, "[0:1]={{1,2},{3,4}}", ["1", "2", "3", "4"]),
        (values.hstore_map, '"a\\"b"=>"c, d", "e"=>NULL', {'a"b': "c, d", "e": None}),
        (values.binary, "\\x00ff", b"\x00\xff"),
    ],
)
def test_reading(read: Callable[[str], Any], text: str, value: Any) -> None:
    """One text, one value."""
    assert read(text) == value


def test_a_number_longer_than_python_reads_at_once() -> None:
    """numeric holds up to 131,072 digits before the point."""
    decimal = values.variable_scale_decimal("9" * 5000 + ".5")
    assert decimal["scale"] == 1
    assert int.from_bytes(decimal["value"], "big", signed=True) == 10**5001 - 5


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_refused_by_exact_decimals(text: str) -> None:
    """A decimal has no place for it."""
    with pytest.raises(NotANumber):
        values.decimal_of(2)(text)
    with pytest.raises(NotANumber):
        values.variable_scale_decimal(text)


@pytest.mark.parametrize(
    ("mode", "digits", "wanted"),
    [
        ("precise", 0, (1235).to_bytes(2, "big")),
        ("precise", 2, (123456).to_bytes(3, "big")),
        ("precise", 4, (12345600).to_bytes(4, "big")),
        ("string", 0, "1235"),
        ("string", 1, "1234.6"),
        ("string", 3, "1234.560"),
        ("double", 0, 1234.56),
        ("double", 4, 1234.56),
    ],
)
def test_digits_of_money_change_its_scale_and_not_its_amount(mode: str, digits: int, wanted: object) -> None:
    """`money.fraction.digits`, in each `decimal.handling.mode`."""
    given = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    chosen = settings.parse({**given, "decimal.handling.mode": mode, "money.fraction.digits": str(digits)})
    codec = columns._money(chosen)
    assert codec.read("$1,234.56") == wanted
    if mode == "precise":
        assert dict(codec.schema.parameters)["scale"] == str(digits)
