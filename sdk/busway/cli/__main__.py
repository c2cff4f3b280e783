"""`python -m busway.cli`: the command where the script `busway` is not on the path."""

from busway.cli import main

main()
