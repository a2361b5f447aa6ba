"""The command line: commands in `commands/`, long-running processes in `process/`, shared parts beside them."""

__all__ = ["main"]


def main() -> None:
    """Run the program. What parses the command line is imported here: the agent's process does without it."""
    from forewarn.cli.app import main as run

    run()
