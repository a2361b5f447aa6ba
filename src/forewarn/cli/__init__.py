"""The command line: commands in `commands/`, long-running processes in `process/`, shared parts beside them."""

__all__ = ["main"]


def main() -> None:
    """Run the program. The command-line parser is imported here, because the agent's process does not need it."""
    from forewarn.cli.app import main as run

    run()
