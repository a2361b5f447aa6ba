"""The guest endpoint, which VMs poll: HTTP, identity of the caller, limits, faults."""
