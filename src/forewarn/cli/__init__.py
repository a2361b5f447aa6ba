"""One command, `forewarn`."""

from forewarn.cli.app import main

__all__ = ["main"]
