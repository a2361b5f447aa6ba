"""The rules of Scheduled Events: pure, without I/O, clock or randomness; `now` and ids are arguments."""
