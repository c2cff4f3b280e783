"""`python -m busway.cli`: the `busway` command without its script on the path."""

from busway.cli import main

main()
