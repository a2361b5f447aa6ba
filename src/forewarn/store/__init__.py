"""Storage of records and their journal: the port, the in-memory store, and one sub-package per database."""
