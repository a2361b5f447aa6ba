"""Where records and their journal are kept: the port, and one module per store."""
