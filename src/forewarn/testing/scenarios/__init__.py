"""The scenarios that ship with Forewarn, as text files."""
