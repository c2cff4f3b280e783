"""The frame of registered Avro, and the mark of decoded records.

Here: constants for both decoders.
Not here: decoding (`avro`, `avro_python`).
"""

from typing import Final

FRAME_BYTES: Final = 5
"""A zero byte and a schema id of four bytes."""
DECODED: Final = "busway_decoded"
