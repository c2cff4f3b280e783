"""Write the reference pages, or check them: `python -m tools.reference [--check]`."""

import sys

from tools.reference.pages import PAGES, ROOT, stale


def main(arguments: list[str]) -> int:
    """Write all pages; with --check only name those that are stale."""
    names = stale()
    if "--check" in arguments:
        sys.stdout.write("".join(f"{name} is stale: run python -m tools.reference\n" for name in names))
        return 1 if names else 0
    for name in names:
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(PAGES[name]())
        sys.stdout.write(f"wrote {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
