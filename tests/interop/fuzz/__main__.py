"""`python -m tests.interop.fuzz`: longer runs of both fuzzers.

Here: the command line.
Not here: playing orders (`play`).
"""

import argparse
import sys
import time

from hypothesis.internal.conjecture import providers

from tests.interop.fuzz.play import SETTINGS, About, Brokers, hunt
from tests.support.apache_kafka import ApacheKafka
from tests.support.seeds import seed


def main() -> int:
    """Run; 1 where something differs."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python -m tests.interop.fuzz", description=__doc__)
    parser.add_argument("--about", choices=("transactions", "groups"), help="one of the two fuzzers; default: both")
    parser.add_argument("--sequences", type=int, default=300, help="sequences of calls for each fuzzer (default 300)")
    parser.add_argument("--seed", type=int, help="the first seed (default: the variable SEED, or 1)")
    given = parser.parse_args()
    first = seed(1) if given.seed is None else given.seed
    # Else Hypothesis also draws constants of modules, which depend on what has been imported.
    providers.is_local_module_file = lambda path: False
    abouts: list[About] = [given.about] if given.about else ["transactions", "groups"]
    transcripts: list[str] = []

    def report(transcript: str) -> None:
        transcripts.append(transcript)
        print(transcript, end="\n\n", flush=True)

    with ApacheKafka(SETTINGS) as kafka, Brokers(kafka) as brokers:
        for about in abouts:
            begun = time.monotonic()
            hunt(brokers, about, given.sequences, first, report)
            counts = brokers.counts
            print(
                f"{about}: so far {counts.sequences} sequences, {counts.calls} calls ({counts.left_out} left out), "
                f"{len(transcripts)} differences, {time.monotonic() - begun:.0f} s; {dict(counts.codes.most_common())}",
                flush=True,
            )
    return bool(transcripts)


if __name__ == "__main__":
    sys.exit(main())
