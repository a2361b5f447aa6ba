"""Serves the operator API /v1 to the people who run the fleet."""
