"""CRC-32C (Castagnoli) in native code, the checksum of record batches.

Here: loading it. `import crc32c` takes 30 ms for 60 other modules; so only the extension module is loaded, or the
package if it is built otherwise.
"""

import importlib.machinery
import importlib.util
from collections.abc import Callable
from typing import Any, Final


def _load() -> Any:
    package = importlib.util.find_spec("crc32c")
    places = package.submodule_search_locations if package else None
    spec = importlib.machinery.PathFinder.find_spec("crc32c._crc32c", places)
    if spec is None or spec.loader is None:
        import crc32c

        return crc32c
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


crc32c: Final[Callable[..., int]] = _load().crc32c
"""`crc32c(data, value=0)`: the checksum of data after bytes with checksum `value`."""

__all__ = ["crc32c"]
