"""`python -m busway_registry.validation`: the process that `pool` starts.

Separate from `worker`, so that pickled classes have the same module name on both sides.
"""

import sys
from contextlib import suppress

from busway_registry.validation.worker import serve, set_bounds

if __name__ == "__main__":
    set_bounds()
    with suppress(BrokenPipeError):
        serve(sys.stdin.buffer, sys.stdout.buffer)
