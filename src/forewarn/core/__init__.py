"""The rules of Scheduled Events. Pure: no I/O, no clock, no chance; `now` and ids are arguments."""
