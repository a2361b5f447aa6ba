"""One command, `forewarn`."""
