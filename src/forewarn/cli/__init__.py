"""The command line: commands in `commands/`, long-running processes in `process/`, shared parts beside them."""

from forewarn.cli.app import main

__all__ = ["main"]
