"""`python -m tests.support.judging FILE…`: judge histories of lines of JSON; 1 where something is wrong, 2 where a file is no history.

Here: the command line.
Not here: the format (`lines`) and the judgement (`report`).
"""

import sys
from pathlib import Path

from tests.support.judging.lines import BadLine, read, whole_lines
from tests.support.judging.report import judge


def main(files: list[str]) -> int:
    """Judge each file; several together are one history."""
    if not files:
        sys.stderr.write("name the files of a history: python -m tests.support.judging FILE…\n")
        return 2
    lines: list[str] = []
    for name in files:
        try:
            lines += whole_lines(Path(name).read_text())
        except (OSError, UnicodeDecodeError) as problem:
            sys.stderr.write(f"{name}: {problem}\n")
            return 2
    try:
        report = judge(read(lines))
    except BadLine as problem:
        sys.stderr.write(f"{' '.join(files)}: {problem}\n")
        return 2
    sys.stdout.write(report.text() + "\n")
    return 1 if report.anomalies else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
