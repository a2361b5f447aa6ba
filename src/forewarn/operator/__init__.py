"""The operator API /v1, for the operators of a fleet."""
