"""Write the reference pages, or check them: `python -m tools.reference [--check]`."""

import sys

from tools.reference.pages import PAGES, ROOT, is_fresh


def main(arguments: list[str]) -> int:
    """Write the pages that are stale; with --check only name them."""
    stale = 0
    for name in PAGES:
        if is_fresh(name):
            continue
        stale += 1
        if "--check" in arguments:
            sys.stdout.write(f"{name} is stale: run python -m tools.reference\n")
            continue
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(PAGES[name]())
        sys.stdout.write(f"wrote {name}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
