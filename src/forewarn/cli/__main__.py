"""Run `forewarn` with `python -m forewarn.cli`."""

from forewarn.cli.app import main

main()
