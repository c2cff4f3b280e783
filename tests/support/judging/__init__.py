"""The history checker: what clients asked and were told, as lines of JSON, judged: `python -m tests.support.judging FILE`."""
