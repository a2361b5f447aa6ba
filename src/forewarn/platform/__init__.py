"""Who carries maintenance out: the port, and its adapters."""
