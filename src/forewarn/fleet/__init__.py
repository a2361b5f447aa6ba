"""The use cases: in-memory replica, one command queue per record, compare-and-swap on the store, scheduler."""
