"""Commands, one module per command or command group."""
