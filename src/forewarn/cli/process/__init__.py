"""Main programs of long-running processes: service, emulator and agent."""
