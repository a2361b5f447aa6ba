"""`python -m forewarn.cli` is `forewarn`."""

from forewarn.cli.app import main

main()
