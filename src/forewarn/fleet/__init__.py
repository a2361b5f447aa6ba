"""The use cases: an in-memory replica, one command queue per record, compare-and-swap on the store, and the scheduler.
"""
