"""Spark jobs on the captured transactions; each a `transform` without IO and a `main`. `busway spark mybank.jobs.spending` runs one."""
