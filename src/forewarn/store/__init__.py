"""Where records are kept: the port, and its adapters."""
