"""The history checker: what clients asked and were answered, as lines of JSON, judged: `python -m tests.support.judging FILE`."""
