"""`org.apache.kafka.connect.data.Decimal`: the unscaled value as big-endian two's complement.

Here: bytes ↔ `decimal.Decimal`, and the scale in a schema's parameters.
"""

import decimal
from typing import Final

from busway_connect.schema import Schema

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"


def scale_of(schema: Schema) -> int:
    """Return the digits after the point; raises ValueError if missing in the schema."""
    text = dict(schema.parameters).get("scale")
    if text is None:
        raise ValueError(f"Invalid Decimal schema: scale parameter not found in {schema.parameters}")
    return int(text)


def decimal_to_bytes(value: decimal.Decimal, scale: int) -> bytes:
    """Return the shortest two's complement of value x 10^scale; raises ValueError for more digits or no number."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is no decimal number")
    if exponent + scale < 0:
        raise ValueError(f"{value} has more than {scale} digits behind the point")
    unscaled: int = int("".join(map(str, digits)) or "0") * 10 ** (exponent + scale) * (-1 if sign else 1)
    length = int(unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(length, "big", signed=True)


def decimal_from_bytes(data: bytes | bytearray, scale: int) -> decimal.Decimal:
    unscaled = int.from_bytes(data, "big", signed=True)
    return decimal.Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
