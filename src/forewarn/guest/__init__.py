"""The endpoint that virtual machines ask: HTTP, identity of the caller, limits, faults."""
