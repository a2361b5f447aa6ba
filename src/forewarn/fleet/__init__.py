"""The use cases: replica, one queue per record, compare-and-swap on the store, clockwork."""
