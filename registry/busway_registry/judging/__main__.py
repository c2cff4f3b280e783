"""`python -m busway_registry.judging`: what `pool` starts. Apart from `worker`, whose classes are to have the same name at both ends."""

import sys
from contextlib import suppress

from busway_registry.judging.worker import serve, set_bounds

if __name__ == "__main__":
    set_bounds()
    with suppress(BrokenPipeError):
        serve(sys.stdin.buffer, sys.stdout.buffer)
