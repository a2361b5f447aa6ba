"""The platform carries out maintenance: the port and its adapters."""
