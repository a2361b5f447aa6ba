"""Forewarn: tell every machine before you touch it."""

__version__ = "0.1.0"
