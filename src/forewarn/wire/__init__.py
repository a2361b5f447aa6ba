"""The guest protocol as bytes, both ways: strict making, tolerant reading. Pure."""
