"""SQLite store: one writer thread with group commit, readers, schema and migrations."""
