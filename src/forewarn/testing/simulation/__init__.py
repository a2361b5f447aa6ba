"""Simulation of a large fleet: a day of a million VMs with the real rules and documents, in virtual time."""
