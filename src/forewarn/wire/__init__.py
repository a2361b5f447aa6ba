"""The guest protocol as bytes: strict encoders, tolerant parsers. Pure."""
